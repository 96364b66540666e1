"""A node leaves for good, once nothing depends on it."""

import pytest

from muster_coordinator.service.nodes import operate
from muster_coordinator.service.nodes.remove import remove_node
from muster_coordinator.store import read
from muster_shared.errors import Code, Problem
from tests.support.service_world import HOUR, MINUTE, World, asks


async def remove(world: World, name: str) -> None:
    await world.coordinator.write(remove_node, name, "sold")


async def silenced(world: World, name: str) -> None:
    world.agents[name].is_up = False
    await world.wait(5 * MINUTE)


async def test_a_node_that_reports_is_not_removed_and_nothing_changes(world: World) -> None:
    await world.join("a1")
    before = await world.rows()

    with pytest.raises(Problem) as refusal:
        await remove(world, "a1")

    assert (refusal.value.code, "stop its agent first" in refusal.value.detail) == (Code.CONFLICT, True)
    assert await world.rows() == before


async def test_a_silent_node_that_somebody_still_holds_is_not_removed_until_it_is_fenced(world: World) -> None:
    await world.join("a1")
    gang = await world.reserve(asks(duration="10m"))
    await world.settle()
    await silenced(world, "a1")
    await world.wait(HOUR)

    with pytest.raises(Problem) as refusal:
        await remove(world, "a1")
    await world.coordinator.operate(operate.fence, "a1", "burnt")
    await world.settle()
    await remove(world, "a1")

    assert gang.id in refusal.value.detail
    assert await world.state(gang.id) == "ended"
    assert (await world.story(gang.id))[-1] == "ended"


async def test_a_removed_node_is_planned_on_no_more_by_anybody_and_its_host_may_come_back_as_another(
    world: World,
) -> None:
    former = await world.join("a1")
    assert (await world.reserve(asks(start="+3h"))).state == "placed"
    await world.join("a2")
    await silenced(world, "a1")  # the booking moves to the other node
    await remove(world, "a1")
    pool_row = await world.coordinator.database.read(read.pool, "default")
    assert pool_row is not None
    known = await world.coordinator.database.read(world.coordinator.index.snapshot, pool_row, world.clock.moment())
    assert [view.node.name for view in known.views.values()] == ["a2"]

    back = await world.join("a1")

    assert back.node_id != former.node_id
    assert (await world.reserve(asks(start="+3h"))).members[0].node_id == back.node_id
