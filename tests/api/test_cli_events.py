"""`muster events`: a page of what happened, and a stream that survives broken connections."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from muster_coordinator.service import bodies
from muster_shared.codec import decode
from tests.support.canned import Coordinator, coordinator_running, event, node

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
    coordinator.answer("GET /v1/nodes", {"items": [node()]})

    result = await coordinator.muster("events", "--after", "6", "--limit", "2", "--pool", "default")

    assert coordinator.asked[0].call == "GET /v1/events?after=6&poolId=default&limit=2"
    assert coordinator.asked[1].call == "GET /v1/nodes?limit=500"
    assert result.stdout == (
        "SEQ  AT      TYPE                SUBJECT  DETAILS\n"
        "7    1m ago  reservation.placed  rsv_1    nodeIds=gpu-01,node_2\n"
        "8    1m ago  reservation.placed  rsv_1    -\n"
    )
    assert result.stderr == "There are more: --after 8\n"


async def test_following_resumes_after_the_last_event_seen_and_waits_longer_each_time(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/events", {"items": []})
    coordinator.answer("GET /v1/events", frames(1, 2), headers=STREAM)
    coordinator.answer("GET /v1/events", frames(), headers=STREAM)
    coordinator.refuse("GET /v1/events", 503, "UNAVAILABLE", "starting")
    coordinator.answer("GET /v1/events", frames(3), headers=STREAM)
    coordinator.refuse("GET /v1/events", 403, "FORBIDDEN", "No more")

    result = await coordinator.muster("events", "--follow", "-o", "json", "--pool", "default")

    assert [json.loads(line)["seq"] for line in result.stdout.splitlines()] == [1, 2, 3]
    streams = coordinator.asked[1:]
    assert [asked.headers.get("Last-Event-ID") for asked in streams] == ["0", "2", "2", "2", "3"]
    assert {asked.headers["Accept"] for asked in streams} == {"text/event-stream"}
    assert {asked.call for asked in streams} == {"GET /v1/events?poolId=default"}
    assert coordinator.clock.slept == [2.0, 4.0, 8.0, 2.0]
    assert result.exit_code == 5


async def test_followed_events_come_in_columns_with_exact_times(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/events", frames(1), headers=STREAM)
    coordinator.refuse("GET /v1/events", 403, "FORBIDDEN", "No more")

    coordinator.refuse("GET /v1/nodes", 403, "FORBIDDEN", "Not yours")

    result = await coordinator.muster("events", "-f", "--after", "0")

    assert coordinator.asked[1].headers["Last-Event-ID"] == "0"
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["SEQ", "AT", "TYPE", "SUBJECT", "DETAILS"],
        ["1", "2026-09-28T07:59:00Z", "reservation.placed", "rsv_1", "nodeIds=node_1,node_2"],
    ]


async def test_following_nobody_ends_at_once(coordinator: Coordinator) -> None:
    result = await coordinator.muster("events", "--follow", "--coordinator", "http://127.0.0.1:1")

    assert (result.exit_code, coordinator.clock.slept) == (6, [])


async def test_a_coordinator_that_does_not_stream_is_told_from_one_that_does(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/events", {"items": []})
    coordinator.answer("GET /v1/nodes", {"items": []})

    result = await coordinator.muster("events", "--follow")

    assert (result.exit_code, result.stdout) == (6, "")


@pytest.mark.parametrize("newest", [0, 1, 99, 100, 101, 200, 1_000, 12_345])
async def test_following_begins_after_the_newest_event(coordinator: Coordinator, newest: int) -> None:
    def page(query: Mapping[str, str]) -> dict[str, Any]:
        after, limit = int(query["after"]), int(query["limit"])
        return {"items": [event(seq) for seq in range(after + 1, min(after + limit, newest) + 1)]}

    coordinator.page("GET /v1/events", page)
    coordinator.refuse("GET /v1/events", 403, "FORBIDDEN", "No streams")

    result = await coordinator.muster("events", "--follow", "-o", "json")

    assert (result.exit_code, result.stdout) == (5, "")
    assert coordinator.asked[-1].headers["Last-Event-ID"] == str(newest)
    assert len(coordinator.asked) < 20


DETAILS = {
    "instants": ({"start": 1_790_582_400_000, "attempt": 1}, "start=2026-09-28T08:00:00Z attempt=1"),
    "an occurrence": ({"occurrence": 1_790_582_400_000}, "occurrence=2026-09-28T08:00:00Z"),
    "nothing to tell": ({"reason": None, "lost": [], "message": "", "labels": {}}, "-"),
    "a new inventory": ({"gpus": 8, "labels": {"rack": "r7", "zone": "a"}}, "gpus=8 labels=rack:r7,zone:a"),
    "a changed inventory": (
        {
            "gpus": 7,
            "lost": ["GPU-0001"],
            "labels": {"rack": "r8", "zone": "a"},
            "fabricReason": "settling",
            "former": {"labels": {"rack": "r7", "zone": "a", "row": "2"}, "fabricReason": "settling"},
        },
        "rack=r8 (was r7) row=- (was 2) gpus=7 lost=GPU-0001",
    ),
    "changed labels": ({"labels": {"rack": "r8", "zone": "a"}, "former": {"zone": "a"}}, "rack=r8 (new)"),
    "a node": ({"from": "node_1", "to": "node_9"}, "from=gpu-01 to=node_9"),
}


@pytest.mark.parametrize(("facts", "told"), DETAILS.values(), ids=DETAILS.keys())
async def test_details_tell_what_changed_in_words_of_people(
    coordinator: Coordinator, facts: dict[str, Any], told: str
) -> None:
    coordinator.answer("GET /v1/events", {"items": [event(1, subject="node_1", data=facts)]})
    coordinator.answer("GET /v1/nodes", {"items": [node()]})

    header, row = (await coordinator.muster("events")).stdout.splitlines()

    assert row[header.index("SUBJECT") :].split(maxsplit=1) == ["gpu-01", told]


async def test_an_interrupted_stream_ends_with_130_and_says_nothing_of_aborting(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/events", frames(1), headers=STREAM)
    coordinator.clock.interrupts = 0

    result = await coordinator.muster("events", "-f", "--after", "0", "-o", "name")

    assert (result.exit_code, result.stdout) == (130, "evt_1\n")
    assert "Abort" not in result.stderr
