"""Series: create, look, and decide about one occurrence or all that are ahead."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from muster_coordinator.api.handlers.reservations import with_key
from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service import look
from muster_coordinator.service.bodies import Page
from muster_coordinator.service.series import create as series
from muster_coordinator.service.series import look as series_look
from muster_coordinator.service.series import skip
from muster_coordinator.service.series.ahead import make_next
from muster_coordinator.service.series.bodies import (
    OccurrenceChange,
    OccurrenceRequest,
    SeriesEnd,
    SeriesRequest,
    SeriesView,
)
from muster_shared.codec import Count, Request, Text

_AHEAD: Final = 10  # occurrences that an answer shows
_MADE_MAX: Final = 32  # occurrences made before the answer, a month of nights; the background pass makes the rest


class SeriesQuery(Request):
    """Which series, and how many at once."""

    tenant_id: Text | None = None
    pool_id: Text | None = None
    state: Literal["active", "ended"] | None = None
    limit: Annotated[Count, Field(ge=1, le=look.PAGE_MAX)] = 100  # bounds beside a default would not be kept
    cursor: Text | None = None


class AheadQuery(Request):
    """How much of the future is shown."""

    occurrences: Annotated[Count, Field(ge=1, le=look.PAGE_MAX, description="Occurrences ahead")] = _AHEAD


async def create(call: Call[Services, SeriesRequest, None]) -> SeriesView:
    """Create a series with its first occurrences, or answer the one that the same key and body made before."""
    request = with_key(call.body, call.idempotency_key)
    call.guard.confine(request.tenant_id)
    created = await call.services.database.flow(series.create, call.services.clock.moment(), request, call.guard)
    call.guard.committed()
    if not created.replayed:
        await _make_ahead(call.services, created.series_id)
    return await _shown(call, created.series_id)


async def listed(call: Call[Services, None, SeriesQuery]) -> Page:
    """List series, oldest first."""
    query = call.query
    items = await call.services.database.read(
        series_look.all_series,
        call.services.clock.moment(),
        tenant_id=call.guard.confine(query.tenant_id),
        pool_id=query.pool_id,
        state=query.state,
        after=query.cursor,
        limit=query.limit,
    )
    return Page(items=items, next_cursor=items[-1].id if len(items) == query.limit else None)


async def shown(call: Call[Services, None, AheadQuery]) -> SeriesView:
    """Show one series with its next occurrences and their reservations."""
    return await _shown(call, call.path["id"], call.query.occurrences)


async def skipped(call: Call[Services, OccurrenceRequest, None]) -> SeriesView:
    """Leave one occurrence out."""
    services = call.services
    await services.database.write(skip.skip, services.clock.moment(), call.path["id"], call.body.occurrence)
    services.changed.beat()
    return await _shown(call, call.path["id"])


async def unskipped(call: Call[Services, OccurrenceRequest, None]) -> SeriesView:
    """Take back that an occurrence was left out."""
    services = call.services
    await services.database.write(skip.unskip, services.clock.moment(), call.path["id"], call.body.occurrence)
    view = await _shown(call, call.path["id"])
    await _make_ahead(services, view.id)
    return await _shown(call, view.id)


async def changed(call: Call[Services, OccurrenceChange, None]) -> SeriesView:
    """Give one occurrence another window, and leave the others as they are."""
    services = call.services
    reservation_id = await services.database.write(
        skip.change, services.clock.moment(), call.path["id"], call.body, services.index, call.guard
    )
    await services.advance_all([reservation_id])
    return await _shown(call, call.path["id"])


async def cancelled(call: Call[Services, SeriesEnd, None]) -> SeriesView:
    """Cancel what is ahead of a series; what has begun goes on."""
    services = call.services
    await services.database.write(series.cancel, services.clock.moment(), call.path["id"], call.body.since)
    services.changed.beat()
    return await _shown(call, call.path["id"])


async def _make_ahead(services: Services, series_id: str) -> None:
    """Make the next occurrences, so that the answer tells what came of them."""
    for _ in range(_MADE_MAX):
        if not await services.database.flow(make_next, services.clock.moment(), series_id, services.index):
            break
    services.changed.beat()


async def _shown(call: Call[Services, Any, Any], series_id: str, ahead: int = _AHEAD) -> SeriesView:
    return await call.services.database.read(series_look.one_series, call.services.clock.moment(), series_id, ahead)
