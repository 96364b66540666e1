"""Series: each occurrence is a reservation of its own, made ahead, once, whatever becomes of the others."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import Connection, update

from muster_coordinator.service.bodies import ReservationView
from muster_coordinator.service.nodes import operate
from muster_coordinator.service.series import create as series
from muster_coordinator.service.series import look as series_look
from muster_coordinator.service.series.ahead import make_next
from muster_coordinator.service.series.bodies import SeriesView
from muster_coordinator.store.tables import SERIES
from muster_shared.errors import Code, Problem
from tests.support.series_world import at, comes, created, look, states
from tests.support.service_world import DAY, HOUR, MINUTE, Coordinator, World, asks, world_on

FIRST_MS = at("2027-01-15T10:00:00Z")  # two hours after the world begins


async def members_of(world: World, view: SeriesView) -> list[ReservationView]:
    """Return the reservations of the occurrences ahead."""
    return [await world.get(one.reservation_id) for one in view.occurrences if one.reservation_id is not None]


async def test_each_occurrence_is_a_reservation_for_its_own_window(world: World) -> None:
    await world.join("a1")

    view = await created(world, comes("FREQ=DAILY;COUNT=3"))

    made = await members_of(world, view)
    assert [(one.state, one.start, one.end, one.occurrence, one.series_id) for one in made] == [
        ("placed", ms, ms + 2 * HOUR, ms, view.id) for ms in (FIRST_MS, FIRST_MS + DAY, FIRST_MS + 2 * DAY)
    ]
    assert [one.reservation_id for one in view.occurrences] == [one.id for one in made]
    assert await world.story(view.id) == ["created"]
    assert (await world.told(made[0].id, "reservation.created"))[0]["seriesId"] == view.id


async def test_they_are_made_as_far_ahead_as_the_pool_says_and_no_further(database_url: str) -> None:
    async with world_on(database_url, {"series_ahead_ms": 3 * DAY}) as world:
        await world.join("a1")
        view = await created(world, comes())
        assert states(view) == ["placed"] * 3 + ["planned"] * 7

        await world.until(FIRST_MS + DAY)

        view = await look(world, view.id)
        assert states(view) == ["active"] + ["placed"] * 3 + ["planned"] * 6
        assert view.made_until == FIRST_MS + 5 * DAY


async def test_the_background_pass_alone_makes_and_runs_them(world: World) -> None:
    await world.join("a1")
    made = await world.coordinator.database.flow(series.create, world.clock.moment(), comes("FREQ=DAILY;COUNT=20"))

    await world.settle()

    assert states(await look(world, made.series_id, 30)) == ["placed"] * 20
    await world.until(FIRST_MS)
    assert states(await look(world, made.series_id))[0] == "active"


async def test_a_series_ends_when_its_rule_is_over_and_its_last_occurrence_goes_on(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=2"))
    assert view.until == FIRST_MS + DAY + 1
    await world.until(FIRST_MS)
    await world.until(FIRST_MS + DAY)

    await world.wait(1)

    ended = await look(world, view.id)
    assert (ended.state, ended.reason, states(ended)) == ("ended", "Completed", ["active"])
    assert await world.story(view.id) == ["created", "ended"]
    await world.wait(2 * HOUR)
    assert states(await look(world, view.id)) == []


async def test_r40_a_restart_between_two_occurrences_frees_the_first_once_and_runs_the_others(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=4"))
    first, *others = await members_of(world, view)
    await world.until(FIRST_MS)
    assert await world.state(first.id) == "active"
    world.clock.ms = FIRST_MS + 2 * HOUR
    await world.coordinator.passes.run_once()  # tells the node to let go, and is killed

    await world.restart()
    await world.settle()

    assert (await world.get(first.id)).reason == "Completed"
    for number, one in enumerate(others, 1):
        await world.until(FIRST_MS + number * DAY)
        assert await world.state(one.id) == "active"
    assert (await world.story(first.id)).count("ended") == 1
    assert [one.id for one in await members_of(world, view)] == [first.id, *(one.id for one in others)]


async def test_r40_an_occurrence_that_was_made_and_not_noted_is_not_made_again(world: World) -> None:
    """The coordinator dies between the two."""
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=3"))
    before = await world.rows()

    def forget(connection: Connection) -> None:
        connection.execute(update(SERIES).values(made_until_ms=FIRST_MS))

    await world.coordinator.database.write(forget)
    await world.restart()
    await world.settle()

    after = await world.rows()
    assert after["reservation"] == before["reservation"]
    assert states(await look(world, view.id)) == ["placed"] * 3


async def test_r40_two_coordinators_make_none_twice(database_url: str) -> None:
    async with world_on(database_url) as world:
        await world.join("a1")
        # One coordinator serves one SQLite file: there, its own calls meet.
        other = world.coordinator if "sqlite" in database_url else Coordinator(database_url, world.clock, "second")
        made = await other.database.flow(series.create, world.clock.moment(), comes("FREQ=DAILY;COUNT=20"))

        async def make(one: Coordinator) -> None:
            for _ in range(30):
                await one.database.flow(make_next, world.clock.moment(), made.series_id, one.index)

        await asyncio.gather(*(make(one) for one in (world.coordinator, other) * 2))

        assert states(await look(world, made.series_id, 30)) == ["placed"] * 20
        assert len((await world.rows())["reservation"]) == 20
        if other is not world.coordinator:
            await other.database.close()


async def test_r41_only_the_occurrence_that_clashes_waits_and_it_says_why(world: World) -> None:
    await world.join("a1")
    blocker = await world.reserve(asks(start=FIRST_MS + 5 * DAY - 4 * HOUR, duration="24h"))

    view = await created(world, comes("FREQ=DAILY;COUNT=8"))

    assert states(view) == ["placed"] * 5 + ["pending"] + ["placed"] * 2
    assert (view.occurrences[5].reason or "").startswith("doesNotFit: ")
    await world.coordinator.cancel(blocker.id)
    await world.settle()
    assert states(await look(world, view.id)) == ["placed"] * 8


async def test_an_occurrence_that_begins_late_ends_with_its_window(world: World) -> None:
    node = await world.join("a1")
    await world.cordon(node)
    view = await created(world, comes("FREQ=DAILY;COUNT=2"))
    await world.until(FIRST_MS + 90 * MINUTE)

    await world.uncordon(node)
    await world.settle()

    late, on_time = await members_of(world, await look(world, view.id))
    assert (late.state, late.start, late.end) == ("active", FIRST_MS + 90 * MINUTE, FIRST_MS + 2 * HOUR)
    assert (on_time.state, on_time.start) == ("placed", FIRST_MS + DAY)


async def test_an_occurrence_that_cannot_begin_in_time_is_given_up_and_the_next_is_not(world: World) -> None:
    node = await world.join("a1")
    await world.cordon(node)
    view = await created(world, comes("FREQ=DAILY;COUNT=2", latest_start_after="30m"))
    await world.until(FIRST_MS + 30 * MINUTE + 1)

    await world.uncordon(node)
    await world.settle()

    first, second = await members_of(world, view)
    assert (first.state, first.reason, first.latest_start) == ("ended", "Expired", FIRST_MS + 30 * MINUTE)
    assert second.state == "placed"


async def test_what_passed_while_nobody_was_there_is_told_and_the_rest_goes_on(database_url: str) -> None:
    async with world_on(database_url, {"series_ahead_ms": HOUR}) as world:
        await world.join("a1")
        view = await created(world, comes())
        assert states(view) == ["planned"] * 10

        await world.until(FIRST_MS + DAY + HOUR)  # the first is over by then, the second in its middle

        assert [one["occurrence"] for one in await world.told(view.id, "series.missed")] == [FIRST_MS]
        running = (await look(world, view.id)).occurrences[0]
        assert (running.state, running.start, running.end) == (
            "active", FIRST_MS + DAY + HOUR, FIRST_MS + DAY + 2 * HOUR,
        )  # fmt: skip


async def test_cancel_frees_what_has_not_begun_and_lets_the_rest_go_on(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=4"))
    await world.until(FIRST_MS)
    first, *others = await members_of(world, view)

    await world.coordinator.write(series.cancel, view.id, None)
    await world.settle()

    assert await world.state(first.id) == "active"
    assert {(await world.get(one.id)).reason for one in others} == {"Cancelled"}
    ended = await look(world, view.id)
    assert (ended.state, ended.reason) == ("ended", "Cancelled")
    before = await world.rows()
    await world.coordinator.write(series.cancel, view.id, None)
    assert await world.rows() == before
    assert (await world.reserve(asks(start=FIRST_MS + DAY))).state == "placed"


@pytest.mark.parametrize("since", ["2027-01-17", FIRST_MS + DAY + 1])
async def test_cancel_from_an_instant_leaves_what_is_before(world: World, since: str | int) -> None:
    await world.join("a1")
    view = await created(world, comes())
    made = await members_of(world, view)

    await world.coordinator.write(series.cancel, view.id, since)
    await world.settle()

    assert [await world.state(one.id) for one in made[:3]] == ["placed", "placed", "ended"]
    cut = await look(world, view.id)
    assert (cut.state, states(cut)) == ("active", ["placed", "placed"])
    assert await world.story(view.id) == ["created", "cut"]
    await world.until(cut.until or 0)
    assert (await look(world, view.id)).reason == "Completed"
    with pytest.raises(Problem, match="has ended") as refusal:
        await world.coordinator.write(series.cancel, view.id, None)
    assert refusal.value.code is Code.CONFLICT


async def test_a_cancel_between_plan_and_commit_wins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The occurrence was planned; its series is gone when it is to be stored."""
    await world.join("a1")
    made = await world.coordinator.database.flow(series.create, world.clock.moment(), comes())
    snapshot = world.coordinator.index.snapshot

    def overtaken(connection: Connection, *args: Any) -> Any:
        found = snapshot(connection, *args)
        series.cancel(connection, world.clock.moment(), made.series_id, None)
        return found

    monkeypatch.setattr(world.coordinator.index, "snapshot", overtaken)
    done = await world.coordinator.database.flow(
        make_next, world.clock.moment(), made.series_id, world.coordinator.index
    )

    assert done is False
    assert (await world.rows())["reservation"] == []


async def test_the_same_key_and_body_make_one_series(world: World) -> None:
    await world.join("a1")
    request = comes("FREQ=DAILY;COUNT=2", idempotency_key="nightly")
    first = await created(world, request)
    before = await world.rows()
    world.clock.ms += 1_000

    again = await created(world, request)

    assert again.id == first.id
    assert await world.rows() == before


async def test_the_same_key_with_another_body_is_refused(world: World) -> None:
    first = await created(world, comes(idempotency_key="nightly"))
    before = await world.rows()

    with pytest.raises(Problem, match=f"was used for another series .{first.id}") as refusal:
        await created(world, comes(at="11:00", idempotency_key="nightly"))

    assert refusal.value.code is Code.IDEMPOTENCY_MISMATCH
    assert await world.rows() == before
    assert (await created(world, comes(at="11:00", idempotency_key="nightly", tenant_id="other"))).id != first.id


async def test_parallel_calls_with_one_key_for_two_pools_make_one_series(world: World) -> None:
    await world.coordinator.write(operate.create_pool, "other", {})

    made = await asyncio.gather(
        *(
            world.coordinator.database.flow(
                series.create, world.clock.moment(), comes(idempotency_key="nightly", pool_id=pool)
            )
            for pool in ("default", "other") * 4
        ),
        return_exceptions=True,
    )

    assert len({one.series_id for one in made if isinstance(one, series.Created)}) == 1
    assert [one.code for one in made if isinstance(one, Problem)] == [Code.IDEMPOTENCY_MISMATCH] * 4


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rule": "FREQ=MINUTELY"}, "rule"),
    ({"rule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "rule"),
    ({"rule": "FREQ=DAILY;UNTIL=20270114"}, "rule"),
    ({"rule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29"}, "rule"),  # further ahead than the pool allows
    ({"zone": "Mars/Olympus"}, "zone"),
    ({"first_day": "2027-01-14"}, "firstDay"),
    ({"first_day": "2027-02-30"}, "firstDay"),
    ({"first_day": "9999-12-31"}, "rule"),
    ({"duration": "0s"}, "duration"),
    ({"duration": "-1h"}, "duration"),
    ({"duration": "91d"}, "duration"),
    ({"latest_start_after": "soon"}, "latestStartAfter"),
    ({"pool_id": "nowhere"}, "poolId"),
]


async def test_a_series_that_cannot_be_is_refused_and_nothing_is_stored(world: World) -> None:
    before = await world.rows()

    for changed, path in WRONG:
        with pytest.raises(Problem) as refusal:
            await created(world, comes(**changed))
        assert refusal.value.errors[0].path == path

    assert await world.rows() == before


async def test_a_calendar_of_two_zones_shows_the_same_wall_time_through_the_year(world: World) -> None:
    """The clocks are put forward in New York two weeks before Berlin."""
    await world.join("a1")
    world.clock.ms = at("2027-03-10T12:00:00Z")
    await world.beat()

    for zone, walls in {
        "Europe/Berlin": ["2027-03-15T08:00:00+01:00", "2027-03-22T08:00:00+01:00", "2027-03-29T08:00:00+02:00"],
        "America/New_York": ["2027-03-15T08:00:00-04:00", "2027-03-22T08:00:00-04:00", "2027-03-29T08:00:00-04:00"],
    }.items():
        view = await created(world, comes("FREQ=WEEKLY;BYDAY=MO;COUNT=3", at="08:00", zone=zone))
        assert [one.wall for one in view.occurrences] == walls
        assert [one.start for one in view.occurrences] == [at(wall) for wall in walls]


async def test_series_are_listed_by_tenant_pool_and_state_in_pages(world: World) -> None:
    mine: list[SeriesView] = []
    for name in "abc":
        world.clock.ms += 1  # ids are in the order of time
        mine.append(await created(world, comes(name=name)))
    world.clock.ms += 1
    theirs = await created(world, comes(tenant_id="other"))
    await world.coordinator.write(series.cancel, mine[0].id, None)

    async def ids(**query: Any) -> list[str]:
        found = await world.coordinator.database.read(
            series_look.all_series, world.clock.moment(), **{"limit": 100, **query}
        )
        return [one.id for one in found]

    assert await ids() == [*(one.id for one in mine), theirs.id]
    assert await ids(tenant_id="acme", state="active") == [one.id for one in mine[1:]]
    assert await ids(tenant_id="acme", after=mine[0].id, limit=1) == [mine[1].id]
    assert await ids(pool_id="default", state="ended") == [mine[0].id]


async def test_an_unknown_series_is_not_found(world: World) -> None:
    with pytest.raises(Problem, match="there is no series 'series_x'") as refusal:
        await look(world, "series_x")

    assert refusal.value.code is Code.NOT_FOUND
