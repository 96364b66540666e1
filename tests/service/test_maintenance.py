"""Maintenance and those who are in its way: whom it moves, whom it leaves, and who is let in no more."""

import asyncio

from sqlalchemy import select

from muster_coordinator.store.tables import BOOKING
from tests.support.service_world import HOUR, MINUTE, SECOND, START_MS, World, asks
from tests.support.upkeep_world import booked, declare, foretold, id_of, reasons, shown


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


async def test_whoever_is_faster_the_nodes_are_free_for_maintenance_and_everybody_is_placed_beside_them(
    world: World,
) -> None:
    names = [f"a{number}" for number in range(1, 9)]
    await world.join_all(" ".join(names))

    window, gangs = await asyncio.gather(
        declare(world, *names[:4]),
        asyncio.gather(*(world.reserve(asks(start="+3h", key=f"key-{one}")) for one in range(4))),
    )
    await world.wait(31 * SECOND)

    assert booked(await shown(world, id_of(window))) == dict.fromkeys(names[:4], True)
    assert {await world.state(gang.id) for gang in gangs} == {"placed"}
    assert {await world.nodes_of(gang.id) for gang in gangs} == set(names[4:])
