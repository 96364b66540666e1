"""Reservations for later: placed for their window at once, tried again for the same one, and late once it has begun."""

import pytest

from muster_coordinator.service import look
from muster_coordinator.service.bodies import PreviewView, ReservationRequest
from muster_shared.errors import Code, Problem
from tests.support.service_world import DAY, HOUR, MINUTE, SECOND, START_MS, World, asks, world_on

BEGIN_MS, END_MS = START_MS + 10 * HOUR, START_MS + 20 * HOUR

RELATIONS = {
    "before": (-3, -1, True),
    "meets": (-3, 0, True),
    "overlaps": (-2, 3, False),
    "starts": (0, 4, False),
    "during": (2, 7, False),
    "finishes": (6, 10, False),
    "equals": (0, 10, False),
    "is finished by": (-4, 10, False),
    "contains": (-4, 14, False),
    "is started by": (0, 15, False),
    "is overlapped by": (6, 14, False),
    "is met by": (10, 14, True),
    "after": (11, 14, True),
}
"""How one interval may lie to another of ten hours: its start and end, hours from the other's start; does it fit?"""


async def preview(world: World, request: ReservationRequest) -> PreviewView:
    return await world.coordinator.database.read(look.preview, world.clock.moment(), request, world.coordinator.index)


async def test_r42_of_the_thirteen_relations_only_those_fit_that_share_no_instant(world: World) -> None:
    """seatsurfing 2672, Dsek 905, MAKENTNU 89, emhub 118: windows that touch, and windows in one another."""
    await world.join("a1")
    await world.reserve(asks(start=BEGIN_MS, end=END_MS))
    found: dict[str, bool] = {}

    for relation, (start, end, _) in RELATIONS.items():
        asked = asks(start=BEGIN_MS + start * HOUR, end=BEGIN_MS + end * HOUR)
        told = await preview(world, asked)
        one = await world.reserve(asked)
        assert told.fits == (one.state == "placed"), relation
        found[relation] = told.fits
        await world.coordinator.cancel(one.id)

    assert found == {relation: fits for relation, (_, _, fits) in RELATIONS.items()}


async def test_r43_a_part_of_a_second_is_booked_to_the_millisecond(world: World) -> None:
    """flux-sched d1deb081; Blazar's grid of minutes: nothing is rounded, and nothing becomes zero."""
    await world.join("a1")

    for written, ms in {"100ms": 100, "PT1.9S": 1_900, "1900ms": 1_900, "1ms": 1}.items():
        short = await world.reserve(asks(duration=written))
        await world.settle()
        assert (short.duration, await world.state(short.id)) == (ms, "active")
        await world.wait(ms)
        assert (await world.get(short.id)).reason == "Completed"


async def test_r43_a_start_between_two_seconds_is_kept_and_its_neighbour_may_touch_it(world: World) -> None:
    await world.join("a1")
    start_ms = START_MS + HOUR + 59_999

    one = await world.reserve(asks(start=start_ms, duration="100ms"))
    before = await world.reserve(asks(start=START_MS + HOUR, end=start_ms))
    behind = await world.reserve(asks(start=start_ms + 100))

    assert [(each.state, each.start) for each in (one, before, behind)] == [
        ("placed", start_ms), ("placed", START_MS + HOUR), ("placed", start_ms + 100),
    ]  # fmt: skip


async def test_r43_no_time_at_all_and_what_is_no_length_are_refused(world: World) -> None:
    before = await world.rows()

    for written in ("0", "0s", "0ms", "-1s", "-PT1S", "1.9s", "PT", "1e3s", ""):
        with pytest.raises(Problem, match="duration") as refusal:
            await world.reserve(asks().model_copy(update={"duration": written}))
        assert (refusal.value.code, refusal.value.errors[0].path) == (Code.INVALID_INPUT, "duration")

    assert await world.rows() == before


async def test_what_is_asked_for_later_is_placed_at_once_for_its_window_and_begins_then(world: World) -> None:
    await world.join("a1")

    later = await world.reserve(asks(start=BEGIN_MS, end=END_MS))

    assert (later.state, later.start, later.end, len(later.members)) == ("placed", BEGIN_MS, END_MS, 1)
    await world.until(BEGIN_MS - 1)
    assert await world.state(later.id) == "placed"
    await world.wait(1)
    assert await world.state(later.id) == "active"
    await world.until(END_MS)
    assert (await world.get(later.id)).reason == "Completed"


async def test_what_does_not_fit_is_tried_again_for_the_same_window(world: World) -> None:
    await world.join("a1")
    blocker = await world.reserve(asks(start=BEGIN_MS + HOUR, end=END_MS))
    waiting = await world.reserve(asks(start=BEGIN_MS, duration="2h"))
    assert (waiting.state, waiting.start, waiting.end) == ("pending", BEGIN_MS, BEGIN_MS + 2 * HOUR)

    await world.coordinator.cancel(blocker.id)
    await world.settle()

    placed = await world.get(waiting.id)
    assert (placed.state, placed.start, placed.end) == ("placed", BEGIN_MS, BEGIN_MS + 2 * HOUR)


async def test_once_its_start_has_passed_it_begins_when_it_fits_for_the_whole_duration_or_up_to_its_end(
    world: World,
) -> None:
    await world.join("a1")
    blocker = await world.reserve(asks(start=BEGIN_MS - HOUR, end=BEGIN_MS + HOUR))
    whole = await world.reserve(asks(gpus=4, start=BEGIN_MS, duration="2h"))
    up_to = await world.reserve(asks(gpus=4, start=BEGIN_MS, end=BEGIN_MS + 2 * HOUR))
    await world.until(BEGIN_MS - HOUR)
    await world.until(BEGIN_MS + 30 * MINUTE)
    assert [await world.state(one.id) for one in (whole, up_to)] == ["pending", "pending"]

    await world.coordinator.release(blocker.id)
    await world.settle()

    late = [await world.get(one.id) for one in (whole, up_to)]
    assert [(one.state, one.start, one.end) for one in late] == [
        ("active", BEGIN_MS + 30 * MINUTE, BEGIN_MS + 150 * MINUTE),
        ("active", BEGIN_MS + 30 * MINUTE, BEGIN_MS + 2 * HOUR),
    ]


async def test_a_latest_start_counts_from_when_it_is_placed_not_from_when_it_was_asked(world: World) -> None:
    await world.join("a1")
    blocker = await world.reserve(asks(start=BEGIN_MS - HOUR, end=END_MS))
    late = await world.reserve(asks(gpus=4, start=BEGIN_MS, latest_start=BEGIN_MS + 20 * MINUTE))
    too_late = await world.reserve(asks(gpus=4, start=BEGIN_MS, latest_start=BEGIN_MS + 10 * MINUTE))
    await world.until(BEGIN_MS - HOUR)
    await world.until(BEGIN_MS + 10 * MINUTE)
    assert [await world.state(one.id) for one in (late, too_late)] == ["pending", "pending"]

    world.clock.ms += 1
    await world.coordinator.release(blocker.id)
    await world.settle()

    assert (await world.get(late.id)).start == BEGIN_MS + 10 * MINUTE + 1
    assert (await world.get(too_late.id)).reason == "Expired"


async def test_how_far_ahead_and_how_long_are_limits_to_the_millisecond(database_url: str) -> None:
    async with world_on(database_url, {"look_ahead_ms": 2 * DAY, "max_duration_ms": DAY}) as world:
        await world.join("a1")
        assert (await world.reserve(asks(start=START_MS + 2 * DAY, duration="24h"))).state == "placed"
        before = await world.rows()

        for asked, path in [
            (asks(start=START_MS + 2 * DAY + 1), "start"),
            (asks(duration="24h1s"), "duration"),
            (asks(start="+1h", end=START_MS + HOUR + DAY + 1), "duration"),
        ]:
            with pytest.raises(Problem) as refusal:
                await world.reserve(asked)
            assert (refusal.value.code, refusal.value.errors[0].path) == (Code.INVALID_INPUT, path)

        assert await world.rows() == before


async def test_r44_a_start_that_was_foretold_is_kept_nowhere(world: World) -> None:
    """flux-sched 1424: the nearest start is an answer, not a promise; when the slot is lost nothing still shows it."""
    await world.join("a1")
    await world.reserve(asks(duration="2h"))
    waiting = await world.reserve(asks(duration="3h"))
    before = await world.rows()
    first = await preview(world, asks(duration="3h"))
    assert await world.rows() == before
    assert [yes.start for yes in first.nearest if yes.change == "start"] == [START_MS + 2 * HOUR]

    await world.reserve(asks(start=START_MS + 2 * HOUR, duration="10h"))
    await world.wait(31 * SECOND)

    second = await preview(world, asks(duration="3h"))
    assert [yes.start for yes in second.nearest if yes.change == "start"] == [START_MS + 12 * HOUR]
    shown = await world.get(waiting.id)
    assert (shown.state, shown.start) == ("pending", START_MS)
    assert shown.condition is not None
    assert [blocker.until for blocker in shown.condition.blockers] == [START_MS + 12 * HOUR]
