"""Streams of events on a real server: resumed, kept alive, and always closed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest_asyncio
from aiohttp import ClientPayloadError, ClientSession, StreamReader, web
from structlog.testing import capture_logs

from muster_coordinator.api.operation import Call, Operation
from muster_coordinator.api.server import SHUTDOWN_S
from muster_coordinator.api.stream import StreamEvent, last_seen, wants_stream, write_stream
from muster_shared.codec import Count, Message
from tests.support.serving import served

BLOCKS, BLOCK_BYTES = 400, 1 << 18  # far more than the sockets of a connection hold


class Beat(Message):
    seq: Count


async def ticks(call: Call[object, None, None]) -> web.StreamResponse | Beat:
    if not wants_stream(call.http):
        return Beat(seq=0)
    return await write_stream(call, numbers(last_seen(call.http) or 0), heartbeat_s=0.01)


async def numbers(after: int) -> AsyncGenerator[StreamEvent, None]:
    for seq in range(after + 1, 4):
        yield StreamEvent(seq, "tick", Beat(seq=seq))


async def silence(call: Call[asyncio.Queue[str], None, None]) -> web.StreamResponse:
    async def nothing() -> AsyncGenerator[StreamEvent, None]:
        try:
            await asyncio.Event().wait()
            yield StreamEvent(0, "never", Beat(seq=0))
        finally:
            call.services.put_nowait(call.request_id)

    return await write_stream(call, nothing(), heartbeat_s=0.01)


class Block(Message):
    text: str


async def flood(call: Call[asyncio.Queue[str], None, None]) -> web.StreamResponse:
    async def blocks() -> AsyncGenerator[StreamEvent, None]:
        try:
            for seq in range(BLOCKS):
                call.services.put_nowait(str(seq))
                yield StreamEvent(seq, "block", Block(text="x" * BLOCK_BYTES))
        finally:
            call.services.put_nowait("closed")

    return await write_stream(call, blocks())


async def half(call: Call[object, None, None]) -> web.StreamResponse:
    async def stumbling() -> AsyncGenerator[StreamEvent, None]:
        yield StreamEvent(1, "tick", Beat(seq=1))
        raise RuntimeError("the password is swordfish")

    return await write_stream(call, stumbling())


OPERATIONS = (
    Operation("GET", "/v1/ticks", "Tick", ticks, answer=Beat, audience="public"),
    Operation("GET", "/v1/silence", "Wait", silence, audience="public"),
    Operation("GET", "/v1/flood", "Flood", flood, audience="public"),
    Operation("GET", "/v1/half", "Stumble", half, audience="public"),
)


@pytest_asyncio.fixture
async def closed() -> asyncio.Queue[str]:
    return asyncio.Queue()


@pytest_asyncio.fixture
async def client(closed: asyncio.Queue[str]) -> AsyncIterator[ClientSession]:
    async with served(OPERATIONS, services=closed) as client:
        yield client


async def test_a_stream_resumes_after_the_last_event_seen(client: ClientSession) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "1"}

    answer = await client.get("/v1/ticks", headers=headers)

    assert answer.headers["Content-Type"] == "text/event-stream"
    assert [block for block in (await answer.text()).split("\n\n") if block and block[0] != ":"] == [
        'id: 2\nevent: tick\ndata: {"seq":2}',
        'id: 3\nevent: tick\ndata: {"seq":3}',
    ]


async def test_a_stream_is_not_resumed_from_what_is_no_event_id(client: ClientSession) -> None:
    answer = await client.get("/v1/ticks", headers={"Accept": "text/event-stream", "Last-Event-ID": "-1"})

    assert (await answer.json(content_type="application/problem+json"))["errors"][0]["path"] == "Last-Event-ID"


async def test_a_silent_stream_beats_and_is_closed_without_a_word_when_its_reader_goes(
    closed: asyncio.Queue[str],
) -> None:
    with capture_logs() as logs:
        async with served(OPERATIONS, services=closed) as client:
            answer = await client.get("/v1/silence", headers={"X-Request-Id": "gone"})
            beats = [await answer.content.readuntil(b"\n\n") for _ in range(3)]
            answer.close()
            seen = await closed.get()

    assert beats == [b": open\n\n", b": still here\n\n", b": still here\n\n"]
    assert (seen, logs) == ("gone", [])


async def test_a_stream_ends_when_the_server_stops(closed: asyncio.Queue[str]) -> None:
    async with asyncio.timeout(SHUTDOWN_S / 2), served(OPERATIONS, services=closed) as client:
        answer = await client.get("/v1/silence", headers={"X-Request-Id": "stopped"})
    answer.close()

    assert await closed.get() == "stopped"


async def test_a_reader_that_does_not_read_holds_up_nobody_and_piles_up_nothing(closed: asyncio.Queue[str]) -> None:
    async with served(OPERATIONS, services=closed) as client:
        slow = await client.get("/v1/flood")
        for _ in range(3):
            await closed.get()  # its stream has begun, and nobody reads it
        quick = await client.get("/v1/ticks", headers={"Accept": "text/event-stream"})
        ticks = (await quick.text()).count("event: tick")
        made = closed.qsize()
        slow.close()
        while await closed.get() != "closed":
            pass

    assert ticks == 3
    assert made < BLOCKS


async def test_a_bug_in_a_stream_cuts_it_and_is_logged(client: ClientSession) -> None:
    with capture_logs() as logs:
        answer = await client.get("/v1/half", headers={"X-Request-Id": "halfway"})
        text = b"".join([chunk async for chunk in until_cut(answer.content)])

    assert text == b': open\n\nid: 1\nevent: tick\ndata: {"seq":1}\n\n'
    assert [line["request_id"] for line in logs] == ["halfway"]


async def until_cut(content: StreamReader) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in content.iter_any():
            yield chunk
    except ClientPayloadError:
        return
    raise AssertionError("the stream ended as if it were complete")
