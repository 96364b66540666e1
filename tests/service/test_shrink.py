"""Shrink: members leave a gang, the others stay, and atoms are free once their nodes have confirmed it."""

from typing import Any

import pytest

from muster_coordinator.service.bodies import ReservationView, Segment
from muster_coordinator.service.changes.bodies import ShrinkRequest, ShrunkView
from muster_coordinator.service.changes.shrink import shrink, try_shrink
from muster_shared.errors import Code, Problem
from tests.support.service_world import MINUTE, World, asks, end_of


async def shrunk(world: World, reservation_id: str, **asked: Any) -> ShrunkView:
    return await world.coordinator.write(shrink, reservation_id, ShrinkRequest(**asked), world.coordinator.index)


async def tried(world: World, reservation_id: str, **asked: Any) -> list[str]:
    """Ask who would leave; nothing changes, not a byte."""
    before = await world.rows()
    request = ShrinkRequest(dry_run=True, **asked)
    answer = await world.coordinator.database.read(try_shrink, world.clock.moment(), reservation_id, request)
    assert await world.rows() == before
    return answer.dropped


async def refused(world: World, reservation_id: str, **asked: Any) -> tuple[Code, str]:
    """Return why it was refused; nothing changes, not a byte."""
    before = await world.rows()
    with pytest.raises(Problem) as problem:
        await shrunk(world, reservation_id, **asked)
    assert await world.rows() == before
    return problem.value.code, problem.value.detail


async def running(world: World, size: int, **asked: Any) -> ReservationView:
    made = await world.reserve(asks(size, **asked))
    await world.settle()
    return await world.get(made.id)


async def test_a_running_gang_gets_smaller_and_goes_on(world: World) -> None:
    await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    gang = await running(world, 4)

    answer = await shrunk(world, gang.id, to=3)
    stored = await world.get(gang.id)
    await world.settle()

    after = await world.get(gang.id)
    assert answer.dropped == ["a4"]
    assert answer.model_dump(exclude={"dropped"}) == stored.model_dump()
    assert (stored.state, after.state, after.gang.size, after.end) == ("active", "active", 3, end_of(gang))
    assert await world.nodes_of(gang.id) == "a1 a2 a3"
    assert world.agents["a4"].has == {}
    gone = [one.node_id for one in gang.members if one.node_name == "a4"]
    assert await world.told(gang.id, "reservation.shrunk") == [{"formerSize": 4, "size": 3, "nodeIds": gone}]
    assert (await running(world, 1, tenant="other")).state == "active"


async def test_what_a_member_had_is_nobodys_until_its_node_has_confirmed(world: World) -> None:
    """R25: who is on the way out still occupies its atoms."""
    agents = await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await running(world, 2)
    agents[1].lets_go = False

    await shrunk(world, gang.id, drop=["a2"])
    waiting = await running(world, 1, tenant="other")

    assert (waiting.state, await world.nodes_of(gang.id)) == ("pending", "a1")
    agents[1].lets_go = True
    await world.settle()
    assert (await world.get(waiting.id)).state == "active"


async def test_named_members_leave_by_name_or_id_before_the_start(world: World) -> None:
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    gang = await world.reserve(asks(3, start="+1h"))
    by_name = {one.node_name: one.node_id for one in gang.members}

    answer = await shrunk(world, gang.id, drop=["a1", by_name["a2"], "a1"])

    assert (answer.state, answer.dropped, answer.gang.size) == ("placed", ["a1", "a2"], 1)
    other = await world.reserve(asks(2, start="+1h", tenant="other"))
    assert (other.state, await world.nodes_of(other.id)) == ("placed", "a1 a2")
    await world.wait(60 * MINUTE)
    assert (await world.binds(gang.id)) == {"a3": "bound"}


async def test_a_gang_that_waits_for_one_member_is_active_without_it(world: World) -> None:
    agents = await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    agents[2].confirms = False
    gang = await running(world, 3)

    answer = await shrunk(world, gang.id, drop=["a3"])

    assert (gang.state, answer.state) == ("binding", "active")


async def test_the_member_that_is_worst_off_leaves_first(world: World) -> None:
    """At risk before silent before least sound; of equals the last by name."""
    agents = await world.join_all("a1 a2 a3 a10", fabric="fabric-a.1")
    gang = await running(world, 4)
    assert await tried(world, gang.id, to=3) == ["a10"]
    agents[2].hold(0)
    await agents[2].report()
    agents[2].holds.clear()
    await agents[2].report()
    assert await tried(world, gang.id, to=3) == ["a3"]
    agents[1].is_up = False
    await world.wait(3 * MINUTE)
    assert await tried(world, gang.id, to=3) == ["a2"]
    agents[0].hold(0)
    await agents[0].report()
    assert await tried(world, gang.id, to=3) == ["a1"]
    assert await tried(world, gang.id, to=1) == ["a1", "a2", "a3"]


async def test_a_lost_member_that_leaves_takes_the_degradation_with_it(world: World) -> None:
    agents = await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await running(world, 2)
    agents[0].reboot()
    await agents[0].report()
    await world.settle()
    before = await world.get(gang.id)

    answer = await shrunk(world, gang.id, to=1)

    assert (len(before.at_risk), answer.dropped, answer.at_risk, answer.state) == (1, ["a1"], [], "active")


async def test_whole_segments_leave(world: World) -> None:
    for name, rack in [("a1", "r1"), ("a2", "r1"), ("b1", "r2"), ("b2", "r2")]:
        agent = await world.join(name, fabric="fabric-a.1")
        await world.label(agent, rack=rack)
    asked = asks(4)
    asked = asked.model_copy(
        update={"gang": asked.gang.model_copy(update={"segment": Segment(size=2, topology_key="rack")})}
    )
    gang = await world.reserve(asked)
    await world.settle()
    world.agents["a2"].hold(0)
    await world.agents["a2"].report()

    assert (await refused(world, gang.id, to=3))[1].startswith("to: the gang is made of segments of 2 nodes")
    assert "name all of one, or none" in (await refused(world, gang.id, drop=["a1", "b1"]))[1]
    assert await tried(world, gang.id, drop=["b1", "b2"]) == ["b1", "b2"]
    assert (await shrunk(world, gang.id, to=2)).dropped == ["a1", "a2"]


async def test_what_is_pending_asks_for_fewer_nodes(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await running(world, 3)

    assert gang.state == "pending"
    assert (await refused(world, gang.id, drop=["a1"]))[1].startswith("drop: it has no members yet")
    await shrunk(world, gang.id, to=2)
    await world.wait(MINUTE)

    assert (await world.state(gang.id), await world.nodes_of(gang.id)) == ("active", "a1 a2")


async def test_the_same_size_again_changes_nothing(world: World) -> None:
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    gang = await running(world, 3)
    await shrunk(world, gang.id, to=2)
    await world.settle()
    before = await world.rows()

    again = await shrunk(world, gang.id, to=2)

    assert (again.dropped, again.gang.size) == ([], 2)
    assert await world.rows() == before


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({}, "give either how many nodes stay, or drop"),
        ({"to": 1, "drop": ["a1"]}, "give either how many nodes stay, or drop"),
        ({"to": 3}, "reserve another one beside it"),
        ({"drop": ["a1", "a2"]}, "cancel or release the reservation instead"),
        ({"drop": ["a1", "b7"]}, "drop.1: 'b7' is no member; there are a1, a2"),
    ],
    ids=str,
)
async def test_a_shrink_that_cannot_be_meant_changes_nothing(
    world: World, asked: dict[str, Any], sentence: str
) -> None:
    """R14: a gang never grows in place, so none can be told of nodes that it does not have."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await running(world, 2)

    code, told = await refused(world, gang.id, **asked)

    assert code is Code.INVALID_INPUT
    assert sentence in told


async def test_what_is_over_is_not_shrunk(world: World) -> None:
    agents = await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await running(world, 2)
    agents[0].lets_go = False
    await world.coordinator.release(gang.id)

    assert (await refused(world, gang.id, to=1))[0] is Code.CONFLICT
    agents[0].lets_go = True
    await world.settle()
    assert (await refused(world, gang.id, to=1))[0] is Code.CONFLICT
    assert (await refused(world, "rsv_unknown", to=1))[0] is Code.NOT_FOUND


async def test_a_gang_that_was_shrunk_is_repaired_in_its_new_size(world: World) -> None:
    """R26: the size is a promise, as it is now."""
    await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    gang = await world.reserve(asks(3, start="+1h"))
    gone, bad, stays = sorted(one.node_name for one in gang.members)
    await shrunk(world, gang.id, drop=[gone])

    await world.cordon(world.agents[bad])

    after = await world.get(gang.id)
    names = {one.node_name for one in after.members}
    assert (after.state, len(names), stays in names, bad in names) == ("placed", 2, True, False)
