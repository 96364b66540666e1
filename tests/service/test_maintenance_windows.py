"""The life of a maintenance window: how it is declared, when it begins, and how it ends."""

from typing import Any

import pytest

from muster_coordinator.service.maintenance import declare as maintenance
from muster_coordinator.service.maintenance import look as maintenance_look
from muster_coordinator.service.nodes.remove import remove_node
from muster_shared.errors import Code, Problem
from tests.support.series_world import at, comes, created, look, states
from tests.support.service_world import DAY, HOUR, MINUTE, SECOND, START_MS, World, asks
from tests.support.upkeep_world import booked, declare, id_of, shown, wants


async def test_a_declared_node_takes_nobody_new_while_its_booking_cannot_be_made(world: World) -> None:
    await world.join("a1")
    await world.reserve(asks(gpus=4, start="+3h"))
    await declare(world, "a1")

    beside = await world.reserve(asks(gpus=4, start="+3h"))

    assert (beside.state, beside.condition and beside.condition.blockers[0].reason) == ("pending", "maintenance")


async def test_a_window_begins_and_ends_by_itself_even_if_nobody_was_there_to_see_it(world: World) -> None:
    await world.join("a1")
    window = await declare(world, "a1")

    await world.until(START_MS + 2 * HOUR)
    assert (await shown(world, id_of(window))).state == "begun"
    await world.until(START_MS + 6 * HOUR)

    assert (await shown(world, id_of(window))).state == "ended"
    assert await world.story(id_of(window)) == ["created", "booked", "began", "ended"]
    missed = await declare(world, "a1")
    await world.wait(DAY)
    assert await world.story(id_of(missed)) == ["created", "booked", "began", "ended"]


async def test_what_waits_for_the_window_is_placed_when_it_is_cancelled(world: World) -> None:
    await world.join("a1")
    window = await declare(world, "a1")
    waiting = await world.reserve(asks(start="+3h"))
    assert waiting.state == "pending"

    await world.coordinator.operate(maintenance.cancel, id_of(window))
    await world.coordinator.operate(maintenance.cancel, id_of(window))
    await world.settle()

    assert await world.state(waiting.id) == "placed"
    assert await world.story(id_of(window)) == ["created", "booked", "cancelled"]


async def test_a_booking_that_had_to_stay_is_sound_again_when_the_window_is_cancelled(world: World) -> None:
    await world.join("a1")
    gang = await world.reserve(asks(start="+3h"))
    window = await declare(world, "a1")

    await world.coordinator.operate(maintenance.cancel, id_of(window))

    assert (await world.get(gang.id)).at_risk == []
    assert await world.story(gang.id) == ["created", "placed", "at_risk", "risk_cleared"]


async def test_ending_early_frees_the_nodes_and_is_refused_before_the_beginning(world: World) -> None:
    await world.join("a1")
    window = await declare(world, "a1")
    before = await world.rows()
    with pytest.raises(Problem) as early:
        await world.coordinator.operate(maintenance.end, id_of(window))
    assert (early.value.code, await world.rows()) == (Code.CONFLICT, before)
    await world.until(START_MS + 3 * HOUR)
    with pytest.raises(Problem) as late:
        await world.coordinator.operate(maintenance.cancel, id_of(window))
    assert "muster maintenance end" in late.value.detail

    await world.coordinator.operate(maintenance.end, id_of(window))
    await world.coordinator.operate(maintenance.end, id_of(window))

    assert await world.story(id_of(window)) == ["created", "booked", "began", "ended"]
    assert (await world.reserve(asks(duration="1h"))).members != []


@pytest.mark.parametrize(("start", "duration"), [(3, "1h"), (1, "9h"), (1, "2h"), (5, "3h"), (2, "4h")], ids=str)
async def test_a_window_that_overlaps_another_on_a_node_is_refused_with_its_id(
    world: World, start: int, duration: str
) -> None:
    await world.join_all("a1 a2")
    first = await declare(world, "a1")
    before = await world.rows()

    with pytest.raises(Problem) as refusal:
        await declare(world, "a1", "a2", start=START_MS + start * HOUR, duration=duration)

    assert (refusal.value.code, id_of(first) in refusal.value.detail) == (Code.CONFLICT, True)
    assert await world.rows() == before


async def test_windows_that_touch_do_not_overlap(world: World) -> None:
    await world.join("a1")
    await declare(world, "a1")

    touching = [
        await declare(world, "a1", start="+1h", duration="1h"),
        await declare(world, "a1", start="+6h", duration="1h"),
    ]

    assert [one.state for one in touching] == ["booked", "booked"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"start": 1_000}, "has passed"),
        ({"duration": "0s"}, "duration"),
        ({"duration": "91d"}, "longer than the pool allows"),
        ({"start": "+400d"}, "further ahead"),
        ({"end": "+9h"}, "either a duration or an end"),
        ({"node_selector": {"rack": "r1"}}, "exactly one"),
    ],
    ids=str,
)
async def test_a_window_that_cannot_be_is_refused_and_nothing_changes(
    world: World, more: dict[str, Any], says: str
) -> None:
    await world.join("a1")
    before = await world.rows()

    with pytest.raises(Problem, match=says):
        await declare(world, "a1", **more)

    assert await world.rows() == before


async def test_an_unknown_node_and_a_selector_without_nodes_are_refused(world: World) -> None:
    await world.join("a1")
    with pytest.raises(Problem) as missing:
        await declare(world, "a1", "a7")
    with pytest.raises(Problem) as nobody:
        await declare(world, node_selector={"rack": "r7"})

    assert (missing.value.code, "'a7'" in missing.value.detail) == (Code.NOT_FOUND, True)
    assert "rack=r7" in nobody.value.detail


async def test_a_selector_takes_the_nodes_that_carry_its_labels(world: World) -> None:
    await world.join_all("a1 a2 a3")
    for name in ("a1", "a3"):
        await world.label(world.agents[name], rack="r7")

    window = await declare(world, node_selector={"rack": "r7"})

    assert booked(window) == {"a1": True, "a3": True}


async def test_the_next_pass_finishes_what_a_coordinator_that_died_had_declared(world: World) -> None:
    await world.join("a1")
    gang = await world.reserve(asks(start="+3h"))
    await world.join("a2")
    coordinator = world.coordinator
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(maintenance, "advance", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await coordinator.database.flow(maintenance.create, world.clock.moment(), wants("a1"), coordinator.index)

    await world.restart()
    await world.wait(20 * SECOND)

    assert await world.nodes_of(gang.id) == "a2"
    page = await world.coordinator.database.read(
        maintenance_look.listed, world.clock.moment(), world.coordinator.index, limit=10
    )
    assert [(one.state, booked(one)) for one in page] == [("booked", {"a1": True})]
    assert await world.story(id_of(page[0])) == ["created", "booked"]


async def test_r13_a_node_with_a_booking_or_maintenance_ahead_is_not_removed(world: World) -> None:
    """LP 1721456."""
    await world.join_all("a1 a2")
    gang = await world.reserve(asks(2, start="+30h", same=None))
    window = await declare(world, "a1", start="+40h", duration="1h")
    world.agents["a1"].is_up = world.agents["a2"].is_up = False
    await world.wait(5 * MINUTE)
    before = await world.rows()

    with pytest.raises(Problem) as held:
        await world.coordinator.write(remove_node, "a1", "sold")
    assert (held.value.code, gang.id in held.value.detail) == (Code.CONFLICT, True)
    assert await world.rows() == before
    await world.coordinator.cancel(gang.id)
    with pytest.raises(Problem) as kept:
        await world.coordinator.write(remove_node, "a1", "sold")
    assert id_of(window) in kept.value.detail
    await world.coordinator.operate(maintenance.cancel, id_of(window))
    await world.coordinator.write(remove_node, "a1", "sold")


async def test_r13_a_removal_by_force_repairs_every_booking_of_the_node_and_gives_up_what_is_bound(
    world: World,
) -> None:
    """LP 1721456: force means that the machine is gone for good."""
    await world.join("a1")
    ahead = await world.reserve(asks(start="+30h"))
    running = await world.reserve(asks(duration="5h"))
    await world.settle()
    await declare(world, "a1", start="+40h", duration="1h")
    world.agents["a1"].is_up = False
    await world.wait(5 * MINUTE)
    await world.join("a2")
    assert (await world.nodes_of(ahead.id), await world.state(running.id)) == ("a1", "active")

    await world.coordinator.operate(remove_node, "a1", "burnt", force=True)

    assert (await world.nodes_of(ahead.id), await world.state(ahead.id)) == ("a2", "placed")
    assert (await world.get(running.id)).at_risk != []
    page = await world.coordinator.database.read(
        maintenance_look.listed, world.clock.moment(), world.coordinator.index, limit=10
    )
    assert [booked(one) for one in page] == [{}]


async def test_r13_a_node_that_reports_is_not_removed_by_force_either(world: World) -> None:
    await world.join("a1")
    before = await world.rows()

    with pytest.raises(Problem, match="stop its agent first"):
        await world.coordinator.write(remove_node, "a1", None, force=True)

    assert await world.rows() == before


async def test_r41_a_day_of_maintenance_holds_up_one_occurrence_of_a_weekly_series_and_no_other(world: World) -> None:
    """SchedMD 24838, 7458."""
    await world.join("a1")
    first_ms = at("2027-01-15T10:00:00Z")
    window = await declare(world, "a1", start=first_ms + 14 * DAY, duration="1d")

    weekly = await created(world, comes("FREQ=WEEKLY;COUNT=4"))

    assert states(weekly) == ["placed", "placed", "pending", "placed"]
    assert "1 node in maintenance until" in (weekly.occurrences[2].reason or "")
    await world.coordinator.operate(maintenance.cancel, id_of(window))
    await world.settle()
    assert states(await look(world, weekly.id)) == ["placed"] * 4
