"""IMEX channels: one for each gang in its fabric, and no gang on another's."""

from muster_coordinator.service.nodes import operate
from tests.support.service_world import World, asks


async def channels(world: World, reservation_id: str) -> dict[str, int | None]:
    """What each member's node is told."""
    told: dict[str, int | None] = {}
    for member in (await world.get(reservation_id)).members:
        state = await world.coordinator.desired_of(member.node_id)
        mine = next(one for one in state.assignments if one.allocation_id == member.allocation_id)
        told[member.node_name] = mine.imex_channel
    return told


async def imex_pool(world: World, channels: int = 8) -> None:
    await world.coordinator.write(operate.create_pool, "imex", {"imex_channels": channels})
    for name, fabric in (("a1", "a.1"), ("a2", "a.1"), ("b1", "b.1"), ("b2", "b.1")):
        await world.join(name, pool="imex", fabric=fabric)


async def test_gangs_of_one_fabric_have_channels_of_their_own_and_all_members_have_the_same(world: World) -> None:
    await imex_pool(world)
    first, second, elsewhere = [await world.reserve(asks(2, gpus=4, pool_id="imex")) for _ in range(3)]

    told = [await channels(world, one.id) for one in (first, second, elsewhere)]

    assert told == [{"a1": 1, "a2": 1}, {"a1": 2, "a2": 2}, {"b1": 1, "b2": 1}]


async def test_a_channel_is_given_again_once_everybody_has_let_go_of_it(world: World) -> None:
    await imex_pool(world)
    first = await world.reserve(asks(2, gpus=4, pool_id="imex"))
    await world.settle()
    world.agents["a1"].lets_go = False
    await world.coordinator.release(first.id)
    await world.settle()
    during = await world.reserve(asks(2, gpus=4, pool_id="imex"))
    world.agents["a1"].lets_go = True
    await world.settle()
    after = await world.reserve(asks(2, gpus=4, pool_id="imex"))

    assert await channels(world, during.id) == {"a1": 2, "a2": 2}
    assert await channels(world, after.id) == {"a1": 1, "a2": 1}


async def test_without_a_channel_left_a_gang_is_bound_without_one(world: World) -> None:
    await imex_pool(world, channels=1)
    first, second = [await world.reserve(asks(2, gpus=4, pool_id="imex")) for _ in range(2)]

    assert await channels(world, first.id) == {"a1": 1, "a2": 1}
    assert await channels(world, second.id) == {"a1": None, "a2": None}


async def test_a_pool_whose_hosts_run_no_imex_hands_out_none_and_work_without_a_fabric_gets_none(world: World) -> None:
    await imex_pool(world)
    await world.join("p1", fabric="p.1")
    plain, alone = await world.reserve(asks(gpus=4)), await world.reserve(asks(gpus=4, pool_id="imex"))

    assert await channels(world, plain.id) == {"p1": None}
    assert set((await channels(world, alone.id)).values()) == {None}
