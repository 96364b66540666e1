"""Takes requests of one pool in together, and shows what has become of them."""

from functools import partial
from typing import Final

from sqlalchemy.exc import DBAPIError, IntegrityError

from muster_coordinator.api.services import Made, Services
from muster_coordinator.service import look
from muster_coordinator.service.access.guard import Guard
from muster_coordinator.service.admit import DEFAULT_POOL, Admitted, reserve
from muster_coordinator.service.bodies import ReservationRequest, ReservationView
from muster_coordinator.service.together import Asking, draft_all, enter_all
from muster_shared.errors import Problem

_OF_ALL: Final = (Problem, DBAPIError, OSError)  # an unknown pool, a database that fails: one by one would be no better


async def created(services: Services, request: ReservationRequest, guard: Guard | None = None) -> ReservationView:
    """Create a reservation in its turn, carry it on where it begins at once, and show it.

    Raises:
        Problem: As `reserve` does.
    """
    made = await services.turns.ask(
        request.pool_id or DEFAULT_POOL, Asking(request, guard), partial(reserve_all, services)
    )
    if isinstance(made, Exception):
        raise made
    if made.view is not None:
        return made.view
    if made.admitted.is_due:
        await services.advance_all([made.admitted.reservation_id])
    return await services.database.read(look.reservation, made.admitted.reservation_id)


async def reserve_all(services: Services, asking: list[Asking]) -> list[Made | Exception]:
    """Create reservations in one pool, in one transaction where nobody interferes, else one by one.

    Returns:
        To each request its own answer: what one of them is refused for, or fails on, is nothing to the others.
    """
    # Whoever comes first writes for all: each has their own guard, and nobody looks on besides.
    database, at = services.database.watched(None), services.clock.moment()
    admitted: list[Admitted | Exception]
    try:
        batch = await database.read(draft_all, at, asking, services.index)
        admitted = [*await database.write(enter_all, at, batch)]
    except Exception as error:
        if isinstance(error, _OF_ALL) and not isinstance(error, IntegrityError):
            raise
        admitted = [await _reserve(services, one) for one in asking]
    else:
        services.index.booked(batch.snapshot, batch.bookings, batch.following)
        for one in batch.drafts:
            _stands(one.guard if one.problem is None else None)
    services.recorded.beat()
    at_rest = [one.reservation_id for one in admitted if isinstance(one, Admitted) and not one.is_due]
    views = await database.read(look.reservations_of, at_rest) if at_rest else {}
    return [one if isinstance(one, Exception) else Made(one, views.get(one.reservation_id)) for one in admitted]


async def _reserve(services: Services, one: Asking) -> Admitted | Exception:
    try:
        admitted = await services.database.flow(
            reserve, services.clock.moment(), one.request, services.index, one.guard
        )
    except Exception as error:  # noqa: BLE001 - told to whoever asked; those before and after it are made
        return error
    _stands(None if admitted.replayed else one.guard)
    return admitted


def _stands(guard: Guard | None) -> None:
    if guard is not None:
        guard.committed()
