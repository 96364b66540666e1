"""`muster timeline` and `muster outlook`: bars that fit a terminal, and figures for programs."""

import json
from collections.abc import AsyncIterator
from io import BytesIO, TextIOWrapper
from typing import Any

import pytest
import pytest_asyncio

from muster_cli.calendar_rows import bar
from muster_cli.drawing import drawn
from muster_cli.rows import table
from muster_coordinator.service.capacity import bodies as capacity_bodies
from muster_shared.codec import decode
from tests.support.canned import HOUR_MS, NOW_MS, Coordinator, coordinator_running

TIMELINE = "GET /v1/capacity/timeline"
OUTLOOK = "GET /v1/capacity/outlook"


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def calendar(booked: list[int], bucket_ms: int = HOUR_MS, **more: Any) -> dict[str, Any]:
    """A pool of 16 GPUs."""
    buckets = [
        {"start": NOW_MS + at * bucket_ms, "end": NOW_MS + (at + 1) * bucket_ms, "booked": count, "free": 16 - count}
        for at, count in enumerate(booked)
    ]
    return {"poolId": "pool_1", "allocatable": 16, "buckets": buckets, **more}


def far(booked: list[int]) -> dict[str, Any]:
    found = calendar(
        booked, 24 * HOUR_MS, topologyKey="fabric.domain", largestGang={"f00d.1": [2, 0], "f00d.2": [1, 0]}
    )
    first, second = found["buckets"]
    return {
        **found,
        "buckets": [{**first, "largestGang": 2, "topologyValue": "f00d.1"}, {**second, "largestGang": 0}],
    }


def test_the_canned_documents_are_documents_of_the_api() -> None:
    decode(capacity_bodies.TimelineView, json.dumps(calendar([1])))
    decode(capacity_bodies.OutlookView, json.dumps(far([1, 2])))


async def test_a_day_has_a_line_and_a_bar_for_each_bucket(coordinator: Coordinator) -> None:
    coordinator.answer(TIMELINE, calendar([0, 8, 16]))

    result = await coordinator.muster("timeline")

    assert coordinator.asked[0].call == f"{TIMELINE}?duration=1d&bucket=1h"
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "ALLOCATABLE  BUCKET  FROM                  TO                    LEAST-FREE\n"
        "16           1h      2026-09-28T08:00:00Z  2026-09-28T11:00:00Z  0\n"
        "\n"
        "FROM                  BOOKED  FREE  LOAD\n"
        "2026-09-28T08:00:00Z  0       16    ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░\n"
        "2026-09-28T09:00:00Z  8       8     ████████████████████░░░░░░░░░░░░░░░░░░░░\n"
        "2026-09-28T10:00:00Z  16      0     ████████████████████████████████████████\n"
    )


async def test_a_week_has_a_line_for_each_day_and_a_mark_for_each_bucket(coordinator: Coordinator) -> None:
    coordinator.answer(TIMELINE, calendar([0, 1, 8, 15, 16, *[0] * 331], HOUR_MS // 2))

    result = await coordinator.muster("timeline", "--pool", "p", "--from", "now", "--for", "7d", "--bucket", "30m")

    assert coordinator.asked[0].call == f"{TIMELINE}?poolId=p&start=now&duration=7d&bucket=30m"
    lines = result.stdout.splitlines()
    assert lines[3] == "FROM                  LOAD-BY-30M                                       FREE"
    assert lines[4] == f"2026-09-28T08:00:00Z  ·▁▄▇█{'·' * 43}  0"
    assert lines[5].startswith("2026-09-29T08:00:00Z  ····")
    assert (len(lines), max(map(len, lines)) <= 80) == (11, True)


async def test_programs_get_the_documents_of_the_api(coordinator: Coordinator) -> None:
    coordinator.answer(TIMELINE, calendar([0, 8]))
    coordinator.answer(OUTLOOK, far([0, 8]))

    week = await coordinator.muster("timeline", "-o", "json")
    season = await coordinator.muster("outlook", "-o", "json")

    assert json.loads(week.stdout) == calendar([0, 8])
    assert json.loads(season.stdout) == far([0, 8])


async def test_the_outlook_tells_the_largest_gang_and_wide_every_value(coordinator: Coordinator) -> None:
    coordinator.answer(OUTLOOK, far([0, 16]))

    told = await coordinator.muster("outlook", "--to", "+2d", "--same", "rack")
    wide = await coordinator.muster("outlook", "-o", "wide")

    assert coordinator.asked[0].call == f"{OUTLOOK}?end=%2B2d&topologyKey=rack"
    assert told.stdout.partition("\n\n")[2] == (
        "FROM                  BOOKED  FREE  LOAD                  GANG  TOPOLOGY\n"
        "2026-09-28T08:00:00Z  0       16    ░░░░░░░░░░░░░░░░░░░░  2     f00d.1\n"
        "2026-09-29T08:00:00Z  16      0     ████████████████████  0     -\n"
    )
    assert wide.stdout.split("\n\n")[2] == (
        "TOPOLOGY  LEAST  MOST  NODES\nf00d.1    0      2     2 0\nf00d.2    0      1     1 0\n"
    )


async def test_flags_that_contradict_each_other_ask_nothing(coordinator: Coordinator) -> None:
    both = await coordinator.muster("timeline", "--for", "1d", "--to", "+1d")
    bad = await coordinator.muster("outlook", "--for", "soon")

    assert [both.exit_code, bad.exit_code, coordinator.asked] == [2, 2, []]


async def test_a_refusal_names_the_flag_that_is_too_long(coordinator: Coordinator) -> None:
    coordinator.refuse(TIMELINE, 400, "INVALID_INPUT", "end: at most 7 days", (("end", "at most 7 days"),))

    result = await coordinator.muster("timeline", "--to", "+9d")

    assert (result.exit_code, "--until: at most 7 days" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("booked", "drawing"), [(0, "░░░░"), (1, "█░░░"), (50, "██░░"), (99, "███░"), (100, "████"), (120, "████")]
)
def test_a_bar_loses_neither_one_booked_gpu_nor_one_free_one(booked: int, drawing: str) -> None:
    assert bar(booked, 100, 4) == drawing


def test_a_terminal_without_utf_8_gets_bars_of_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    with TextIOWrapper(BytesIO(), encoding="ascii") as plain:
        monkeypatch.setattr("sys.stdout", plain)
        told = drawn(table("LOAD", [("█░▁▇·",)]))

    assert told == "LOAD\n#.17."
