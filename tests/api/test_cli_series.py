"""`muster series` run against a coordinator that answers fixed documents: what is asked, and what people read."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from muster_coordinator.service.series import bodies as series_bodies
from muster_shared.codec import decode
from tests.support.canned import HOUR_MS, NOW_MS, Coordinator, coordinator_running, reservation

DAY_MS = 24 * HOUR_MS
CREATE = (
    *("series", "create", "--tenant", "acme", "--gpus", "8", "--rule", "FREQ=WEEKLY;BYDAY=MO"),
    *("--at", "08:00", "--zone", "Europe/Berlin", "--for", "12h"),
)


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def occurrence(day: int, **changed: Any) -> dict[str, Any]:
    """An occurrence so many days from now."""
    start = NOW_MS + day * DAY_MS
    booked = {"state": "placed", "reservationId": f"rsv_{day}"}
    wall = f"2027-01-{17 + day}T08:00:00+01:00"
    return {"occurrence": start, "wall": wall, "start": start, "end": start + HOUR_MS, **booked, **changed}


def series(**changed: Any) -> dict[str, Any]:
    """A weekly series of which one occurrence is skipped and one waits."""
    condition = "doesNotFit: 8 GPUs are booked"
    return {
        "id": "series_1",
        "tenantId": "acme",
        "poolId": "pool_1",
        "state": "active",
        "rule": "FREQ=WEEKLY;BYDAY=MO",
        "zone": "Europe/Berlin",
        "first": "2027-01-18T08:00:00",
        "duration": 12 * HOUR_MS,
        "devices": [{"class": "gpu", "count": 8}],
        "gang": {"size": 2},
        "nodeSelector": {},
        "labels": {},
        "occurrences": [
            occurrence(1, state="skipped", reservationId=None),
            occurrence(3),
            occurrence(5, state="pending", reason=condition),
        ],
        "skipped": [NOW_MS + DAY_MS],
        "madeUntil": NOW_MS + 30 * DAY_MS,
        "version": 1,
        "created": NOW_MS,
        **changed,
    }


def test_the_canned_series_is_a_document_of_the_api() -> None:
    decode(series_bodies.SeriesView, json.dumps(series()))


async def test_create_asks_for_what_it_says_and_the_api_accepts_it(coordinator: Coordinator) -> None:
    coordinator.answer("POST /v1/series", series(), 201)

    result = await coordinator.muster(
        *(*CREATE, "--gang", "2", "--same", "fabric.domain", "--first-day", "2027-01-18", "--key", "monday"),
        *("--latest-start-after", "1h", "--name", "run", "--label", "team=vision", "--node-selector", "rack=r7"),
    )

    assert result.exit_code == 0
    (asked,) = coordinator.asked
    assert asked.headers["Idempotency-Key"] == "monday"
    assert asked.body == {
        "tenantId": "acme",
        "devices": [{"class": "gpu", "count": 8, "topology": "any"}],
        "gang": {"size": 2, "topologyKey": "fabric.domain"},
        "nodeSelector": {"rack": "r7"},
        "labels": {"team": "vision"},
        "name": "run",
        "rule": "FREQ=WEEKLY;BYDAY=MO",
        "at": "08:00",
        "zone": "Europe/Berlin",
        "duration": "12h",
        "firstDay": "2027-01-18",
        "latestStartAfter": "1h",
    }
    decode(series_bodies.SeriesRequest, json.dumps(asked.body))
    assert result.stderr == (
        "1 of the occurrences above cannot be placed now: they are tried again; REASON tells why.\n"
    )


async def test_a_series_is_shown_with_what_comes_of_it_next(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/series/series_1", series(name="run"))

    result = await coordinator.muster("series", "get", "series_1")

    assert [" ".join(line.split()) for line in result.stdout.splitlines() if line] == [
        "ID NAME TENANT STATE GPUS RULE AT ZONE FOR NEXT",
        "series_1 run acme active 2x8 FREQ=WEEKLY;BYDAY=MO 08:00 Europe/Berlin 12h in 3d",
        "OCCURRENCE STATE START END RESERVATION REASON",
        "2027-01-18T08:00:00+01:00 skipped in 1d in 1d1h - -",
        "2027-01-20T08:00:00+01:00 placed in 3d in 3d1h rsv_3 -",
        "2027-01-22T08:00:00+01:00 pending in 5d in 5d1h rsv_5 doesNotFit: 8 GPUs are booked",
    ]


async def test_series_alone_lists_those_that_have_not_ended(coordinator: Coordinator) -> None:
    ended = series(id="series_2", state="ended", reason="Cancelled", occurrences=[])
    coordinator.answer("GET /v1/series", {"items": [series(), ended]})

    short = await coordinator.muster("series", "--tenant", "acme")
    every = await coordinator.muster("series", "list", "--all", "-o", "name")
    wide = await coordinator.muster("series", "-o", "wide")

    assert [asked.call for asked in coordinator.asked] == [
        "GET /v1/series?tenantId=acme&state=active",
        "GET /v1/series",
        "GET /v1/series?state=active",
    ]
    assert short.stdout.splitlines()[2].endswith("none: Cancelled")
    assert every.stdout == "series_1\nseries_2\n"
    assert wide.stdout.splitlines()[1].endswith("pool_1  2027-01-18T08:00:00")


@pytest.mark.parametrize(
    ("args", "call", "body", "said"),
    [
        (("skip", "series_1", "2027-01-18"), "skip", {"occurrence": "2027-01-18"}, "Skipped 2027-01-18."),
        (("unskip", "series_1", "2027-01-18"), "unskip", {"occurrence": "2027-01-18"}, "Took 2027-01-18 back."),
        (
            ("change", "series_1", "2027-01-18", "--start", "+2h", "--for", "1h"),
            "change",
            {"occurrence": "2027-01-18", "start": "+2h", "duration": "1h"},
            "Changed 2027-01-18.",
        ),
        (
            ("cancel", "series_1", "--from", "2027-02-01", "--yes"),
            "cancel",
            {"from": "2027-02-01"},
            "goes on until then",
        ),
    ],
)
async def test_each_decision_is_one_call_and_tells_what_was_done(
    coordinator: Coordinator, args: tuple[str, ...], call: str, body: dict[str, str], said: str
) -> None:
    coordinator.answer(f"POST /v1/series/series_1/{call}", series())

    result = await coordinator.muster("series", *args)

    assert (result.exit_code, coordinator.asked[0].body) == (0, body)
    assert said in result.stderr
    assert result.stdout.startswith("ID ")


async def test_cancel_says_that_a_series_has_ended_and_gives_json_to_programs(coordinator: Coordinator) -> None:
    coordinator.answer("POST /v1/series/series_1/cancel", series(state="ended", reason="Cancelled"))

    result = await coordinator.muster("series", "cancel", "series_1", "--yes", "-o", "json")

    assert result.stderr == "series_1 has ended.\n"
    assert json.loads(result.stdout)["reason"] == "Cancelled"
    assert coordinator.asked[0].body == {}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (CREATE[:-2], "'--for'"),
        ((*CREATE, "--at", "8 o'clock"), "no time of day such as 08:00"),
        ((*CREATE, "--first-day", "2027-02-30"), "no day such as 2027-01-18"),
        ((*CREATE, "--start", "+2h"), "No such option"),
        ((*CREATE[:4], "--rule", "FREQ=DAILY", "--at", "08:00", "--for", "1h"), "Say what each node gives"),
        (("series", "skip", "series_1", "next monday"), "is not an instant"),
        (("series", "change", "series_1", "2027-01-18"), "Give --start, --for, or both."),
        (("series", "cancel", "series_1"), "Say so with --yes."),
        (("series", "pause", "series_1"), "No such command 'pause'"),
    ],
)
async def test_a_slip_is_named_before_anything_is_sent(
    coordinator: Coordinator, args: tuple[str, ...], why: str
) -> None:
    result = await coordinator.muster(*args)

    assert (result.exit_code, coordinator.asked) == (2, [])
    assert why in result.stderr


async def test_a_refusal_is_told_in_the_words_of_the_flags(coordinator: Coordinator) -> None:
    coordinator.refuse("POST /v1/series", 400, "INVALID_INPUT", "zone: no such zone", (("zone", "no such zone"),))

    result = await coordinator.muster(*CREATE)

    assert result.exit_code == 2
    assert "--zone: no such zone" in result.stderr


async def test_a_reservation_shows_the_series_that_it_is_of_and_lists_are_narrowed_to_one(
    coordinator: Coordinator,
) -> None:
    coordinator.answer("GET /v1/reservations/rsv_1", reservation(seriesId="series_1", occurrence=NOW_MS))
    coordinator.answer("GET /v1/reservations", {"items": [reservation(seriesId="series_1"), reservation(id="rsv_9")]})

    one = await coordinator.muster("get", "rsv_1")
    several = await coordinator.muster("list", "--series", "series_1", "--all")

    assert "SERIES" in one.stdout
    assert [line.count("series_1") for line in several.stdout.splitlines()] == [0, 1, 0]
    assert coordinator.asked[1].call == "GET /v1/reservations?seriesId=series_1"
