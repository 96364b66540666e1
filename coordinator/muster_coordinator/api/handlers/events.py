"""Events, as pages and as a stream that resumes by sequence."""

from collections.abc import AsyncGenerator
from typing import Annotated, Final

from aiohttp import web
from pydantic import Field

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.api.stream import StreamEvent, last_seen, wants_stream, write_stream
from muster_coordinator.service.bodies import Page
from muster_coordinator.service.look import PAGE_MAX
from muster_coordinator.service.outward.events import Filter, events, filtered
from muster_shared.codec import Count, Request, Text

_BATCH: Final = 100  # events read at once for a stream
_LOOK_S: Final = 1.0  # how late a stream may be where another replica published


class EventQuery(Request):
    """Which events, and after which."""

    after: Count = 0
    limit: Annotated[Count, Field(ge=1, le=PAGE_MAX)] = 100  # bounds beside a default would not be kept
    pool_id: Text | None = Field(default=None, description="Id or name")
    subject: Text | None = Field(default=None, description="The id of a reservation, node, pool or receiver")
    type: Text | None = Field(
        default=None, description="Event types, or prefixes that end in a dot, such as node. ; commas between them"
    )


async def listed(call: Call[Services, None, EventQuery]) -> Page | web.StreamResponse:
    """Answer a page of events, or with `Accept: text/event-stream` all from there on as they happen."""
    query, database = call.query, call.services.database
    types = [] if query.type is None else query.type.split(",")
    wanted = await database.read(filtered, query.pool_id, query.subject, types, call.guard.confine(None))
    if wants_stream(call.http):
        after = last_seen(call.http)
        with call.services.counts.streams.track_inprogress():
            return await write_stream(call, _follow(call.services, wanted, query.after if after is None else after))
    items = (await database.read(events, wanted, after=query.after, limit=query.limit)).items
    return Page(items=items, next_cursor=str(items[-1].seq) if len(items) == query.limit else None)


async def _follow(services: Services, wanted: Filter, after: int) -> AsyncGenerator[StreamEvent, None]:
    while True:
        beats = services.published.beats
        batch = await services.database.read(events, wanted, after=after, limit=_BATCH)
        after = batch.seen
        for item in batch.items:
            yield StreamEvent(item.seq, item.type, item)
        if len(batch.items) < _BATCH:
            await services.published.wait(beats, _LOOK_S)
