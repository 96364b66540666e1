"""Draining a node needs nobody: it takes no new work, bookings move, tenants leave at their time, and it says so."""

from sqlalchemy import Connection, insert, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.service import look
from muster_coordinator.service.nodes import operate
from muster_coordinator.store.tables import ALLOCATION, BOOKING, RESERVATION
from tests.support.coordinator_agent import ScriptedAgent
from tests.support.invariants import check
from tests.support.service_world import HOUR, MINUTE, SECOND, World, asks, end_of


async def drain(world: World, agent: ScriptedAgent) -> None:
    await world.coordinator.operate(operate.set_intent, agent.node_id, "draining", "new riser")


async def drained_ms(world: World, agent: ScriptedAgent) -> int | None:
    shown = await world.coordinator.database.read(look.node, world.clock.moment(), agent.node_id)
    return shown.drained


async def test_a_drained_node_is_empty_without_anybody_acting_and_says_so_once(world: World) -> None:
    node = await world.join("a1")
    running = await world.reserve(asks(gpus=4, duration="3h"))
    booked = await world.reserve(asks(gpus=4, start="+9d", duration="1h"))  # far beyond the horizon
    await world.settle()
    await world.join("a2")

    await drain(world, node)
    await world.settle()
    assert await world.nodes_of(booked.id) == "a2"
    assert (await world.state(running.id), await world.nodes_of(running.id)) == ("active", "a1")
    assert await world.nodes_of((await world.reserve(asks(gpus=1))).id) == "a2"
    assert await drained_ms(world, node) is None
    await world.until(end_of(await world.get(running.id)))
    for _ in range(3):
        await world.wait(MINUTE)

    assert (await world.get(running.id)).reason == "Completed"
    assert (await world.story(node.node_id)).count("drained") == 1
    assert await drained_ms(world, node) is not None
    assert node.has == {}


async def test_a_node_that_is_opened_and_drained_again_says_so_again(world: World) -> None:
    node = await world.join("a1")
    await drain(world, node)
    await world.settle()
    await world.uncordon(node)
    await world.settle()
    assert await drained_ms(world, node) is None

    await drain(world, node)
    await world.settle()

    assert (await world.story(node.node_id)).count("drained") == 2


async def test_a_booking_that_finds_no_other_node_stays_until_the_horizon(world: World) -> None:
    node = await world.join("a1")
    booked = await world.reserve(asks(start="+2d", duration="1h"))
    await drain(world, node)
    await world.settle()
    assert (await world.state(booked.id), len((await world.get(booked.id)).at_risk)) == ("placed", 1)

    await world.join("a2")
    await world.wait(15 * MINUTE)

    assert (await world.state(booked.id), await world.nodes_of(booked.id)) == ("placed", "a2")
    assert (await world.story(node.node_id))[-1] == "drained"


async def test_a_tenant_leaves_a_draining_node_at_the_end_of_its_protection(world: World) -> None:
    node = await world.join("a1")
    running = await world.reserve(asks(duration="9h"))
    await world.settle()
    protected = update(RESERVATION).values(protected_until_ms=world.now_ms + HOUR)  # as a pool with a cap gives it
    await world.coordinator.write(lambda connection, _: connection.execute(protected) and None)
    await drain(world, node)
    await world.wait(HOUR - 1)
    assert await world.state(running.id) == "active"

    await world.wait(1)

    ended = await world.get(running.id)
    assert (ended.state, ended.reason) == ("ended", "Preempted")
    assert (await world.story(node.node_id))[-1] == "drained"


async def test_a_late_release_is_told_once_and_shown_until_the_node_is_fenced(world: World) -> None:
    node = await world.join("a1")
    running = await world.reserve(asks(duration="1h"))
    await world.settle()
    node.lets_go = False
    await world.coordinator.release(running.id)
    await world.wait(3 * MINUTE - 1)
    assert (await world.get(running.id)).members[0].overdue is False

    for _ in range(3):
        await world.wait(SECOND)

    shown = await world.get(running.id)
    assert (shown.state, shown.members[0].overdue) == ("ending", True)
    (told,) = await world.told(node.node_id, "node.release_overdue")
    assert (told["allocationId"], told["reservationId"]) == (shown.members[0].allocation_id, running.id)
    assert "muster nodes fence a1" in told["next"]
    seen = await world.coordinator.database.read(look.node, world.clock.moment(), node.node_id)
    assert [one.reservation_id for one in seen.overdue] == [running.id]
    node.is_up = False
    await world.wait(MINUTE)
    await world.coordinator.operate(operate.fence, node.node_id, "powered off")
    assert (await world.get(running.id)).reason == "Released"
    seen = await world.coordinator.database.read(look.node, world.clock.moment(), node.node_id)
    assert seen.overdue == []


async def test_what_is_left_of_nobody_is_found_told_and_freed(world: World) -> None:
    """R48: an allocation and its booking that outlived their reservation keep nobody away for long."""
    node = await world.join("a1")
    over = await world.reserve(asks(start="+1h", duration="1h"))
    await world.coordinator.cancel(over.id)

    def left_behind(connection: Connection, _: Moment) -> None:
        (old,) = connection.execute(select(ALLOCATION)).mappings().all()
        connection.execute(
            insert(ALLOCATION).values(**{**old, "id": "alloc_orphan", "live": True, "bind_state": "bound"})
        )
        (row,) = connection.execute(select(BOOKING)).mappings().all()
        connection.execute(insert(BOOKING).values(**{**row, "allocation_id": "alloc_orphan", "live": True}))

    await world.coordinator.write(left_behind)
    waits = await world.reserve(asks(start="+1h", duration="1h"))
    assert waits.state == "pending"

    for _ in range(11):
        await world.wait(MINUTE)

    (told,) = await world.told(node.node_id, "node.orphan_freed")
    assert (told["allocationId"], told["reservationId"]) == ("alloc_orphan", over.id)
    assert await world.state(waits.id) == "placed"
    assert await world.coordinator.database.read(check, world.now_ms) == []
