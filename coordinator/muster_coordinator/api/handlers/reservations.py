"""Reservations: create, look, cancel, release."""

from typing import Annotated, TypeVar

from pydantic import Field

from muster_coordinator.api.admission import created
from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.core.model import State
from muster_coordinator.service import look
from muster_coordinator.service.bodies import Asked, Page, PreviewView, ReservationRequest, ReservationView
from muster_coordinator.service.changes import cancel as change
from muster_shared.codec import Count, Request, Text
from muster_shared.errors import Code, FieldError, Problem, invalid

A = TypeVar("A", bound=Asked)


class ReservationQuery(Request):
    """Which reservations, and how many at once."""

    tenant_id: Text | None = None
    pool_id: Text | None = None
    state: Text | None = Field(default=None, description="One state, or several with commas between them")
    series_id: Text | None = Field(default=None, description="Occurrences of this series")
    name: Text | None = Field(default=None, description="Those that their owners gave this name")
    limit: Annotated[Count, Field(ge=1, le=look.PAGE_MAX)] = 100  # bounds beside a default would not be kept
    cursor: Text | None = None


async def create(call: Call[Services, ReservationRequest, None]) -> ReservationView:
    """Create a reservation, or answer the one that the same key and body made before."""
    call.guard.confine(call.body.tenant_id)
    return await created(call.services, with_key(call.body, call.idempotency_key), call.guard)


async def preview(call: Call[Services, ReservationRequest, None]) -> PreviewView:
    """Answer what creating this reservation would do now."""
    call.guard.confine(call.body.tenant_id)
    services = call.services
    return await services.database.read(look.preview, services.clock.moment(), call.body, services.index, call.guard)


async def listed(call: Call[Services, None, ReservationQuery]) -> Page:
    """List reservations, oldest first."""
    query = call.query
    states = [] if query.state is None else query.state.split(",")
    for state in states:
        if state not in {one.value for one in State}:
            raise invalid("state", f"{state!r} is none of {', '.join(State)}")
    items = await call.services.database.read(
        look.reservations,
        tenant_id=call.guard.confine(query.tenant_id),
        pool_id=query.pool_id,
        states=states,
        series_id=query.series_id,
        name=query.name,
        after=query.cursor,
        limit=query.limit,
    )
    return Page(items=items, next_cursor=items[-1].id if len(items) == query.limit else None)


async def shown(call: Call[Services, None, None]) -> ReservationView:
    """Show one reservation with every member."""
    return await call.services.database.read(look.reservation, call.path["id"])


async def cancelled(call: Call[Services, None, None]) -> ReservationView:
    """Cancel one reservation, all members or nothing."""
    services = call.services
    await services.database.write(change.cancel, services.clock.moment(), call.path["id"], services.index)
    services.changed.beat()
    return await services.database.read(look.reservation, call.path["id"])


async def released(call: Call[Services, None, None]) -> ReservationView:
    """Release one reservation before its window ends, all members or nothing."""
    services = call.services
    await services.database.write(change.release, services.clock.moment(), call.path["id"], services.index)
    services.changed.beat()
    return await services.database.read(look.reservation, call.path["id"])


def with_key(request: A, header: str | None) -> A:
    """Return a request with the idempotency key of the header, where it came in one.

    Raises:
        Problem: `INVALID_INPUT`: the body has another one.
    """
    if header is None:
        return request
    if request.idempotency_key not in {None, header}:
        detail = "the header Idempotency-Key and the field idempotencyKey differ: send one of them"
        raise Problem(Code.INVALID_INPUT, detail, (FieldError("idempotencyKey", "differs from the header"),))
    return request.model_copy(update={"idempotency_key": header})
