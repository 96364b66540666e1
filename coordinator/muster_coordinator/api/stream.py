"""Server-sent events: a stream that a client resumes by the number of the last event it saw.

Source: WHATWG HTML, section 9.2 (server-sent events).
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import hdrs, web
from pydantic import BaseModel

from muster_coordinator.api.operation import Call
from muster_shared.codec import encode
from muster_shared.errors import invalid

MEDIA_TYPE: Final = "text/event-stream"
LAST_EVENT_ID: Final = "Last-Event-ID"
HEARTBEAT_S: Final = 15.0
"""Proxies cut a silent connection after 30 to 60 seconds; a vanished client is found at the next write."""

_SEQ: Final = re.compile(r"[0-9]{1,16}")


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event on the wire."""

    seq: int  # what a client sends back to resume after it
    type: str  # one word, such as `reservation.placed`
    message: BaseModel


def wants_stream(request: web.Request) -> bool:
    """Tell whether the client asked for a stream and not for a page."""
    return MEDIA_TYPE in request.headers.get(hdrs.ACCEPT, "")


def last_seen(request: web.Request) -> int | None:
    """Return the number after which the client resumes, or None for a first connection.

    Raises:
        Problem: `INVALID_INPUT` when Last-Event-ID is no number of ours.
    """
    text = request.headers.get(LAST_EVENT_ID)
    if text is None:
        return None
    if not _SEQ.fullmatch(text):
        raise invalid(LAST_EVENT_ID, "not the id of an event of this stream")
    return int(text)


async def write_stream(
    call: Call[Any, Any, Any], events: AsyncGenerator[StreamEvent, None], heartbeat_s: float = HEARTBEAT_S
) -> web.StreamResponse:
    """Write events as they come, until they end, the client goes, or the server stops.

    Args:
        call: The call to answer.
        events: Closed here, whatever ends the stream.
        heartbeat_s: Seconds of silence after which a comment is written.
    """
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: MEDIA_TYPE, "X-Accel-Buffering": "no"})
    await response.prepare(call.http)
    async with aclosing(events), aclosing(_frames(events, call.closing, heartbeat_s)) as frames:
        try:
            async for frame in frames:
                await response.write(frame)
        except ConnectionResetError:
            pass  # the client went: the usual end of a stream
    return response


async def _frames(
    events: AsyncIterator[StreamEvent], closing: asyncio.Event, heartbeat_s: float
) -> AsyncGenerator[bytes, None]:
    stop = asyncio.create_task(closing.wait())
    upcoming = asyncio.ensure_future(anext(events, None))
    try:
        yield b": open\n\n"  # at once, so that the client knows it is connected
        while not stop.done():
            await asyncio.wait({stop, upcoming}, timeout=heartbeat_s, return_when=asyncio.FIRST_COMPLETED)
            if upcoming.done():
                event = upcoming.result()
                if event is None:
                    return
                upcoming = asyncio.ensure_future(anext(events, None))
                yield _frame(event)
            elif not stop.done():
                yield b": still here\n\n"
    finally:
        stop.cancel()
        upcoming.cancel()
        await asyncio.gather(stop, upcoming, return_exceptions=True)


def _frame(event: StreamEvent) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), encode(event.message))
