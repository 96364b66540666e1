"""Maintenance windows: whom they move, whom they leave, when their nodes are booked, and how they end."""

from typing import Any

import pytest
from sqlalchemy import select

from muster_coordinator.service import maintenance, maintenance_look
from muster_coordinator.service.maintenance_bodies import MaintenanceRequest, MaintenanceView
from muster_coordinator.service.remove import remove_node
from muster_coordinator.store.tables import BOOKING
from muster_shared.errors import Code, Problem
from tests.support.service_world import DAY, HOUR, MINUTE, SECOND, START_MS, World, asks


def wants(*names: str, start: str | int | None = "+2h", duration: str = "4h", **more: Any) -> MaintenanceRequest:
    return MaintenanceRequest(nodes=list(names), start=start, duration=duration, reason="new fans", **more)


async def declare(world: World, *names: str, **more: Any) -> MaintenanceView:
    """Do what the API does."""
    coordinator = world.coordinator
    made = await coordinator.database.flow(
        maintenance.create, world.clock.moment(), wants(*names, **more), coordinator.index
    )
    return await shown(world, made)


async def shown(world: World, maintenance_id: str) -> MaintenanceView:
    coordinator = world.coordinator
    return await coordinator.database.read(
        maintenance_look.shown, world.clock.moment(), maintenance_id, coordinator.index
    )


async def foretold(world: World, *names: str, **more: Any) -> MaintenanceView:
    coordinator = world.coordinator
    return await coordinator.database.read(
        maintenance_look.preview, world.clock.moment(), wants(*names, **more), coordinator.index
    )


def id_of(view: MaintenanceView) -> str:
    assert view.id is not None, "it was declared"
    return view.id


def booked(view: MaintenanceView) -> dict[str, bool]:
    return {node.node_name: node.booked for node in view.nodes}


def reasons(view: MaintenanceView) -> dict[str, list[str]]:
    return {node.node_name: [one.reason for one in node.in_the_way] for node in view.nodes if node.in_the_way}


async def test_a_free_node_is_booked_for_its_window_and_nobody_is_placed_on_it(world: World) -> None:
    node = await world.join("a1")

    window = await declare(world, "a1")

    assert (window.state, booked(window)) == ("booked", {"a1": True})
    assert await world.story(id_of(window)) == ["created", "booked"]
    before = await world.reserve(asks(duration="2h"))
    inside = await world.reserve(asks(start="+3h"))
    after = await world.reserve(asks(start="+6h"))
    assert [one.state for one in (before, inside, after)] == ["binding", "pending", "placed"]
    assert (inside.condition and [(one.reason, one.nodes, one.until) for one in inside.condition.blockers]) == [
        ("maintenance", 1, START_MS + 6 * HOUR)
    ]
    assert "1 node in maintenance until" in (inside.condition.message if inside.condition else "")
    rows = await world.coordinator.database.read(
        lambda connection: connection.execute(
            select(BOOKING.c.allocation_id, BOOKING.c.mask).where(BOOKING.c.reservation_id == id_of(window))
        ).all()
    )
    assert [tuple(row) for row in rows] == [(f"{window.id}/{node.node_id}", 0b1111_1111)]


async def test_bookings_in_the_window_move_at_once_however_far_ahead_they_are(world: World) -> None:
    await world.join("a1")
    gang = await world.reserve(asks(start="+240h"))
    await world.join("a2")

    window = await declare(world, "a1", start=START_MS + 240 * HOUR)

    assert (await world.nodes_of(gang.id), await world.state(gang.id)) == ("a2", "placed")
    assert await world.story(gang.id) == ["created", "placed", "at_risk", "repaired"]
    assert (window.state, booked(window)) == ("booked", {"a1": True})


async def test_what_fits_nowhere_else_stays_where_it_is_and_is_named_with_the_reason(world: World) -> None:
    await world.join("a1")
    gang = await world.reserve(asks(start="+3h"))

    window = await declare(world, "a1")

    assert (window.state, booked(window)) == ("blocked", {"a1": False})
    assert [one.reservation_id for one in window.nodes[0].in_the_way] == [gang.id]
    assert reasons(window)["a1"][0].startswith("stays for now: no node fits: 1 node ")
    after = await world.get(gang.id)
    assert (after.state, after.members) == ("placed", gang.members)
    assert after.at_risk == [f"a1: the node will be in maintenance ({window.id})"]
    (told,) = await world.told(id_of(window), "maintenance.blocked")
    assert told["by"] == {world.agents["a1"].node_id: [gang.id]}


async def test_a_declared_node_takes_nobody_new_while_its_booking_cannot_be_made(world: World) -> None:
    await world.join("a1")
    await world.reserve(asks(gpus=4, start="+3h"))
    await declare(world, "a1")

    beside = await world.reserve(asks(gpus=4, start="+3h"))

    assert (beside.state, beside.condition and beside.condition.blockers[0].reason) == ("pending", "maintenance")


async def test_the_node_is_booked_as_soon_as_room_elsewhere_lets_the_booking_move(world: World) -> None:
    await world.join("a1")
    gang = await world.reserve(asks(start="+3h"))
    window = await declare(world, "a1")
    await world.join("a2")

    await world.wait(31 * SECOND)

    assert await world.nodes_of(gang.id) == "a2"
    after = await shown(world, id_of(window))
    assert (after.state, booked(after)) == ("booked", {"a1": True})
    assert await world.story(id_of(window)) == ["created", "blocked", "booked"]
    assert await world.story(gang.id) == ["created", "placed", "at_risk", "repaired"]


async def test_what_runs_is_never_thrown_out_and_the_node_is_booked_when_it_has_let_go(world: World) -> None:
    await world.join("a1")
    gang = await world.reserve(asks(duration="3h"))
    await world.settle()
    await world.join("a2")

    window = await declare(world, "a1", start="+2h")

    assert (await world.state(gang.id), await world.nodes_of(gang.id)) == ("active", "a1")
    assert (await world.get(gang.id)).at_risk == []
    assert (window.state, booked(window)) == ("blocked", {"a1": False})
    assert "what runs is never thrown out" in reasons(window)["a1"][0]
    await world.until(START_MS + 2 * HOUR + MINUTE)
    assert (await shown(world, id_of(window))).state == "begun"
    assert await world.state(gang.id) == "active"
    await world.until(START_MS + 3 * HOUR)
    after = await shown(world, id_of(window))
    assert (await world.state(gang.id), booked(after)) == ("ended", {"a1": True})
    assert await world.story(id_of(window)) == ["created", "blocked", "began", "booked"]


async def test_a_node_is_not_booked_while_a_tenant_has_not_let_go_of_it(world: World) -> None:
    node = await world.join("a1")
    gang = await world.reserve(asks(duration="1h"))
    await world.settle()
    node.lets_go = False
    await world.until(START_MS + HOUR)
    assert await world.state(gang.id) == "ending"

    window = await declare(world, "a1", start="now")
    assert (window.state, reasons(window)) == (
        "begun",
        {"a1": ["stays until every node has confirmed its release"]},
    )
    node.lets_go = True
    await world.settle()

    assert booked(await shown(world, id_of(window))) == {"a1": True}


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


async def test_devices_that_a_node_reports_later_are_booked_too(world: World) -> None:
    node = await world.join("a1", gpus=4)
    window = await declare(world, "a1")

    node.gpus = 8
    await node.report()

    masks = await world.coordinator.database.read(
        lambda connection: (
            connection.execute(select(BOOKING.c.mask).where(BOOKING.c.reservation_id == id_of(window), BOOKING.c.live))
            .scalars()
            .all()
        )
    )
    assert masks == [0b1111_1111]
    assert (await world.reserve(asks(gpus=1, start="+3h"))).state == "pending"


async def test_r27_a_repair_takes_no_node_that_is_in_maintenance_for_a_part_of_the_window(world: World) -> None:
    """SchedMD 23547, 20803: the only nodes that look free sit in a maintenance window."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, start="+1h", duration="2h"))
    await world.join_all("a3 a4", fabric="fabric-a.1")
    window = await declare(world, "a3", "a4", start="+2h")
    world.agents["a1"].hold(0)

    await world.agents["a1"].report()

    after = await world.get(gang.id)
    assert (after.state, after.condition and after.condition.reason) == ("pending", "BookingRepairFailed")
    assert after.condition is not None
    assert ("maintenance", 2) in [(one.reason, one.nodes) for one in after.condition.blockers]
    assert booked(await shown(world, id_of(window))) == {"a3": True, "a4": True}


async def test_a_booking_that_is_broken_besides_does_not_stay_for_lack_of_room(world: World) -> None:
    node = await world.join("a1")
    gang = await world.reserve(asks(start="+3h"))
    await declare(world, "a1")
    assert await world.state(gang.id) == "placed"

    node.hold(0)
    await node.report()

    assert await world.state(gang.id) == "pending"


async def test_a_booking_that_had_to_stay_starts_where_it_is(world: World) -> None:
    await world.join("a1")
    gang = await world.reserve(asks(start="+3h"))
    window = await declare(world, "a1")

    await world.until(START_MS + 3 * HOUR)

    assert (await world.state(gang.id), await world.nodes_of(gang.id)) == ("active", "a1")
    assert booked(await shown(world, id_of(window))) == {"a1": False}


async def test_a_preview_foretells_who_moves_where_and_who_stays_and_changes_nothing(world: World) -> None:
    await world.join_all("a1 a2")
    running = await world.reserve(asks(gpus=8, duration="5h"))
    await world.settle()
    (other,) = {"a1", "a2"} - {await world.nodes_of(running.id)}
    ahead = await world.reserve(asks(start="+3h", gpus=4))
    await world.join("b1", gpus=4)
    before = await world.rows()

    told = await foretold(world, "a1", "a2")

    assert await world.rows() == before
    found = {one.reservation_id: (one.moves_to, one.reason[:5]) for node in told.nodes for one in node.in_the_way}
    assert found == {running.id: ([], "stays"), ahead.id: (["b1"], "moves")}
    assert await world.nodes_of(ahead.id) == other
    await declare(world, "a1", "a2")
    assert await world.nodes_of(ahead.id) == "b1"


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
