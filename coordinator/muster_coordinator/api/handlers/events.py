"""Events, as pages and as a stream that resumes by sequence."""

from collections.abc import AsyncGenerator
from typing import Annotated, Final

from aiohttp import web
from pydantic import Field

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.api.stream import StreamEvent, last_seen, wants_stream, write_stream
from muster_coordinator.service import look
from muster_coordinator.service.bodies import EventView, Page
from muster_shared.codec import Count, Request, Text

_BATCH: Final = 100  # events read at once for a stream
_LOOK_S: Final = 1.0  # how late a stream may be where another replica published


class EventQuery(Request):
    """Which events, and after which."""

    after: Count = 0
    limit: Annotated[Count, Field(ge=1, le=look.PAGE_MAX)] = 100  # bounds beside a default would not be kept
    pool_id: Text | None = None
    subject: Text | None = Field(default=None, description="The id of a reservation, node or pool")


async def listed(call: Call[Services, None, EventQuery]) -> Page | web.StreamResponse:
    """Answer a page of events, or with `Accept: text/event-stream` all from there on as they happen."""
    query = call.query
    if wants_stream(call.http):
        after = last_seen(call.http)
        return await write_stream(call, _follow(call.services, query, query.after if after is None else after))
    items = await _batch(call.services, query, query.after, query.limit)
    return Page(items=items, next_cursor=str(items[-1].seq) if len(items) == query.limit else None)


async def _follow(services: Services, query: EventQuery, after: int) -> AsyncGenerator[StreamEvent, None]:
    while True:
        seen = services.published.beats
        items = await _batch(services, query, after, _BATCH)
        for item in items:
            after = item.seq
            yield StreamEvent(item.seq, item.type, item)
        if not items:
            await services.published.wait(seen, _LOOK_S)


async def _batch(services: Services, query: EventQuery, after: int, limit: int) -> list[EventView]:
    return await services.database.read(
        look.events, after=after, limit=limit, pool_id=query.pool_id, subject=query.subject
    )
