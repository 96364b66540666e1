"""`muster events`: a page of what happened, and a stream that survives broken connections."""

import json
from collections.abc import AsyncIterator

import pytest_asyncio

from muster_coordinator.service import bodies
from muster_shared.codec import decode
from tests.support.canned import Coordinator, coordinator_running, event

STREAM = {"Content-Type": "text/event-stream"}


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def frames(*seqs: int) -> bytes:
    heartbeat = b": still here\n\n"
    return heartbeat + b"".join(
        f"id: {seq}\nevent: reservation.placed\ndata: {json.dumps(event(seq))}\n\n".encode() for seq in seqs
    )


def test_the_canned_documents_are_documents_of_the_api() -> None:
    decode(bodies.EventView, json.dumps(event(1)))


async def test_a_page_of_events_says_where_the_next_begins(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/events", {"items": [event(7), event(8, data={})], "nextCursor": "8"})

    result = await coordinator.muster("events", "--after", "6", "--limit", "2", "--pool", "default")

    assert coordinator.asked[0].call == "GET /v1/events?after=6&poolId=default&limit=2"
    assert result.stdout == (
        "SEQ  AT      TYPE                SUBJECT  DETAILS\n"
        "7    1m ago  reservation.placed  rsv_1    nodeIds=node_1,node_2\n"
        "8    1m ago  reservation.placed  rsv_1    -\n"
    )
    assert result.stderr == "There are more: --after 8\n"


async def test_following_resumes_after_the_last_event_seen_and_waits_longer_each_time(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/events", frames(1, 2), headers=STREAM)
    coordinator.answer("GET /v1/events", frames(), headers=STREAM)
    coordinator.refuse("GET /v1/events", 503, "UNAVAILABLE", "starting")
    coordinator.answer("GET /v1/events", frames(3), headers=STREAM)
    coordinator.refuse("GET /v1/events", 403, "FORBIDDEN", "No more")

    result = await coordinator.muster("events", "--follow", "-o", "json", "--pool", "default")

    assert [json.loads(line)["seq"] for line in result.stdout.splitlines()] == [1, 2, 3]
    assert [asked.headers.get("Last-Event-ID") for asked in coordinator.asked] == [None, "2", "2", "2", "3"]
    assert {asked.headers["Accept"] for asked in coordinator.asked} == {"text/event-stream"}
    assert {asked.call for asked in coordinator.asked} == {"GET /v1/events?poolId=default"}
    assert coordinator.clock.slept == [2.0, 4.0, 8.0, 2.0]
    assert result.exit_code == 5


async def test_followed_events_come_in_columns_with_exact_times(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/events", frames(1), headers=STREAM)
    coordinator.refuse("GET /v1/events", 403, "FORBIDDEN", "No more")

    result = await coordinator.muster("events", "-f", "--after", "0")

    assert coordinator.asked[0].headers["Last-Event-ID"] == "0"
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["SEQ", "AT", "TYPE", "SUBJECT", "DETAILS"],
        ["1", "2026-09-28T07:59:00Z", "reservation.placed", "rsv_1", "nodeIds=node_1,node_2"],
    ]


async def test_following_nobody_ends_at_once(coordinator: Coordinator) -> None:
    result = await coordinator.muster("events", "--follow", "--coordinator", "http://127.0.0.1:1")

    assert (result.exit_code, coordinator.clock.slept) == (6, [])


async def test_a_coordinator_that_does_not_stream_is_told_from_one_that_does(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/events", {"items": []})

    assert (await coordinator.muster("events", "--follow")).exit_code == 6
