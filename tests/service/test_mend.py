"""Somebody asks for a repair now: all that is at risk moves, or everything stays as it was."""

import pytest
from sqlalchemy import select

from muster_coordinator.service.repairs.bodies import RepairedView, RepairRequest
from muster_coordinator.service.repairs.mend import repair_now, try_repair
from muster_coordinator.store.tables import BOOKING
from muster_shared.errors import Code, Problem
from tests.support.service_world import MINUTE, World, asks, start_of


async def repair(world: World, reservation_id: str, *avoid: str) -> RepairedView:
    wanted = RepairRequest(avoid=list(avoid))
    return await world.coordinator.write(repair_now, reservation_id, wanted, world.coordinator.index)


async def plan_b(world: World, reservation_id: str, *avoid: str) -> RepairedView:
    """Ask for a dry run, which stores nothing."""
    before = await world.rows()
    wanted = RepairRequest(avoid=list(avoid), dry_run=True)
    read, index = world.coordinator.database.read, world.coordinator.index
    answer = await read(try_repair, world.clock.moment(), reservation_id, wanted, index)
    assert await world.rows() == before
    return answer


async def far_ahead(world: World) -> str:
    """A gang in three days, with a spare beside it."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, start="+3d"))
    await world.join("a9", fabric="fabric-a.1")
    return gang.id


async def test_a_booking_at_risk_is_repaired_before_its_horizon_when_somebody_asks(world: World) -> None:
    gang = await far_ahead(world)
    world.agents["a1"].hold(0)
    await world.settle()
    planned = (await plan_b(world, gang)).repair
    assert (planned.fits, planned.leaving, planned.joining) == (True, ["a1"], ["a9"])
    assert planned.message == "a9 would take over for a1"

    done = await repair(world, gang)

    assert (done.repair.message, done.at_risk) == ("a9 took over for a1", [])
    assert (await world.state(gang), await world.nodes_of(gang)) == ("placed", "a2 a9")


async def test_a_sound_booking_is_left_alone_and_told_so(world: World) -> None:
    gang = await far_ahead(world)
    before = await world.rows()

    answers = [await repair(world, gang), await plan_b(world, gang)]

    assert [one.repair.sound for one in answers] == [True, True]
    assert await world.rows() == before


async def test_a_member_moves_off_a_node_that_is_named(world: World) -> None:
    gang = await far_ahead(world)

    await repair(world, gang, "a2")

    assert await world.nodes_of(gang) == "a1 a9"


async def test_where_nothing_fits_everything_stays_and_the_reason_is_told(world: World) -> None:
    gang = await far_ahead(world)
    before = await world.rows()
    planned = (await plan_b(world, gang, "a1", "a9")).repair
    assert (planned.fits, planned.message[:43]) == (False, "no gang of 2 nodes fits in one fabric.domai")

    with pytest.raises(Problem, match=r"stays as it is: no gang of 2 nodes fits in one fabric\.domain") as refused:
        await repair(world, gang, "a1", "a9")

    assert refused.value.code is Code.CONFLICT
    assert await world.rows() == before


async def test_a_node_that_has_not_proven_itself_takes_over_where_no_other_can(world: World) -> None:
    gang = await far_ahead(world)
    world.agents["a9"].hold(0)
    await world.settle()
    world.agents["a9"].holds.clear()
    await world.settle()

    await repair(world, gang, "a1")

    assert await world.nodes_of(gang) == "a2 a9"


async def test_a_lost_member_of_a_running_gang_is_replaced_when_its_owner_asks(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, duration="5h"))
    await world.settle()
    await world.wait(20 * MINUTE)
    await world.join("a9", fabric="fabric-a.1")
    with pytest.raises(Problem, match="runs on a2: only members that are lost or harmed"):
        await repair(world, gang.id, "a2")
    world.agents["a1"].reboot()
    await world.settle()
    assert await world.state(gang.id) == "active"

    await repair(world, gang.id)
    assert await world.state(gang.id) == "binding"
    await world.settle()

    assert (await world.state(gang.id), await world.nodes_of(gang.id)) == ("active", "a2 a9")


async def test_what_has_no_members_cannot_be_repaired(world: World) -> None:
    waits = await world.reserve(asks())
    with pytest.raises(Problem, match="placed by itself as soon as it fits"):
        await repair(world, waits.id)
    await world.coordinator.cancel(waits.id)
    with pytest.raises(Problem, match="is ended: reserve again"):
        await repair(world, waits.id)
    with pytest.raises(Problem, match="there is no reservation"):
        await repair(world, "rsv_none")


async def test_a_node_that_nobody_has_is_refused(world: World) -> None:
    gang = await far_ahead(world)

    with pytest.raises(Problem, match="the pool has no node 'a7'"):
        await repair(world, gang, "a7")


async def test_after_a_repair_event_calendar_and_agents_tell_the_same(world: World) -> None:
    """R28, SchedMD 24040, 24723: one event feeds all who count."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = (await world.reserve(asks(2, start="+1h"))).id
    await world.join("a9", fabric="fabric-a.1")
    world.agents["a1"].hold(0)
    await world.agents["a1"].report()
    await world.until(start_of(await world.get(gang)))

    shown = await world.get(gang)
    nodes = sorted(member.node_id for member in shown.members)
    (told,) = await world.told(gang, "reservation.repaired")
    booked = await world.coordinator.database.read(
        lambda connection: connection.execute(select(BOOKING.c.node_id).where(BOOKING.c.live)).scalars().all()
    )
    has = sorted(agent.node_id for agent in world.agents.values() if agent.has)
    assert (shown.state, told["nodeIds"], sorted(booked), has) == ("active", nodes, nodes, nodes)
    assert (await world.told(gang, "reservation.active"))[0]["nodeIds"] == nodes
