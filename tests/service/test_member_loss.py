"""What an active gang wants when a member is surely dead: to be told, another node, or its end."""

from muster_coordinator.service.nodes import operate
from tests.support.service_world import MINUTE, SECOND, World, asks


async def active_gang(world: World, size: int = 2, on_member_loss: str = "notify") -> str:
    """A gang that runs on every node of fabric a."""
    await world.join_all(" ".join(f"a{number}" for number in range(1, size + 1)), fabric="fabric-a.1")
    gang = await world.reserve(asks(size, duration="5h", on_member_loss=on_member_loss))
    await world.settle()
    assert await world.state(gang.id) == "active"
    return gang.id


async def test_a_lost_member_is_told_once_with_what_to_do(world: World) -> None:
    """F04: the host restarts under an active gang; nothing is bound again without an order, and time goes on."""
    gang = await active_gang(world)
    before = await world.get(gang)
    node = world.agents["a1"]
    node.reboot()

    for _ in range(3):
        await world.wait(MINUTE)

    (told,) = await world.told(gang, "reservation.degraded")
    assert told["nodeId"] == node.node_id
    assert told["risks"] == ["a1: the node no longer has it bound (lostByReboot)"]
    assert f"muster repair {gang}" in told["next"]
    after = await world.get(gang)
    assert (after.state, after.end, node.has) == ("active", before.end, {})


async def test_each_lost_member_is_told_by_itself(world: World) -> None:
    gang = await active_gang(world, 3)
    world.agents["a1"].reboot()
    await world.settle()
    world.agents["a3"].reboot()
    await world.settle()

    told = await world.told(gang, "reservation.degraded")
    assert [one["nodeId"] for one in told] == [world.agents[name].node_id for name in ("a1", "a3")]


async def test_a_spare_of_the_same_fabric_takes_the_place_of_a_dead_member(world: World) -> None:
    gang = await active_gang(world, on_member_loss="replace")
    await world.join("b1", fabric="fabric-b.1")
    spare = await world.join("a9", fabric="fabric-a.1")
    spare.confirms = False
    before = await world.get(gang)
    world.agents["a1"].reboot()
    await world.settle()

    binding = await world.get(gang)
    assert (binding.state, await world.nodes_of(gang)) == ("binding", "a2 a9")  # not every member is bound
    assert await world.binds(gang) == {"a2": "bound", "a9": "binding"}
    assert (binding.end, binding.activated) == (before.end, before.activated)
    spare.confirms = True
    await world.settle()

    after = await world.get(gang)
    assert (after.state, after.activated, after.end, after.at_risk) == ("active", before.activated, before.end, [])
    assert after.protected_until == before.protected_until
    assert (await world.story(gang))[-4:] == ["active", "degraded", "repaired", "active"]
    assert world.agents["a2"].told == [one.allocation_id for one in before.members if one.node_name == "a2"]


async def test_where_nothing_can_take_over_the_gang_stays_degraded_and_is_tried_again(world: World) -> None:
    """R26: kill one of four without a spare; a node that is added later makes it four again."""
    gang = await active_gang(world, 4, on_member_loss="replace")
    await world.join("b1", fabric="fabric-b.1")  # of another fabric: no help
    world.agents["a3"].is_up = False
    await world.wait(10 * MINUTE)
    assert await world.story(gang) == ["created", "placed", "binding", "active"]  # silence is no death
    await world.coordinator.operate(operate.fence, "a3", "powered off")
    await world.wait(5 * MINUTE)
    assert (await world.state(gang), len((await world.get(gang)).at_risk)) == ("active", 1)
    assert (await world.story(gang)).count("degraded") == 1

    await world.join("a9", fabric="fabric-a.1")
    await world.wait(30 * SECOND)

    assert (await world.state(gang), await world.nodes_of(gang)) == ("active", "a1 a2 a4 a9")


async def test_a_node_that_came_back_takes_its_own_place_once_it_has_proven_itself(world: World) -> None:
    gang = await active_gang(world, on_member_loss="replace")
    node = world.agents["a1"]
    node.is_up = False
    await world.wait(5 * MINUTE)
    node.is_up = True
    node.reboot()
    await world.settle()
    await world.wait(9 * MINUTE)
    assert (await world.state(gang), await world.binds(gang)) == ("active", {"a1": "lost", "a2": "bound"})

    for _ in range(4):
        await world.wait(30 * SECOND)

    assert (await world.state(gang), await world.binds(gang)) == ("active", {"a1": "bound", "a2": "bound"})


async def test_a_newcomer_that_never_binds_is_replaced_and_the_others_keep_their_place(world: World) -> None:
    """R33: the bind deadline holds for whoever comes in later, too; the end stays, and no member is given up."""
    gang = await active_gang(world, on_member_loss="replace")
    await world.wait(10 * MINUTE)  # past the grace of the first epoch
    spare = await world.join("a8", fabric="fabric-a.1")
    spare.confirms = False
    end = (await world.get(gang)).end
    world.agents["a1"].reboot()
    await world.settle()
    assert await world.nodes_of(gang) == "a2 a8"
    world.agents["a1"].is_up = False
    await world.wait(30 * SECOND)
    await world.wait(2 * MINUTE)
    for _ in range(4):
        await world.wait(30 * SECOND)
    assert (await world.state(gang), await world.binds(gang)) == ("binding", {"a2": "bound", "a8": "binding"})

    await world.join("a9", fabric="fabric-a.1")
    await world.wait(30 * SECOND)

    assert (await world.state(gang), await world.nodes_of(gang)) == ("active", "a2 a9")
    assert (await world.get(gang)).end == end


async def test_a_gang_that_was_interrupted_ends_as_completed(world: World) -> None:
    gang = await active_gang(world, on_member_loss="replace")
    spare = await world.join("a9", fabric="fabric-a.1")
    spare.confirms = False
    world.agents["a1"].reboot()
    await world.settle()
    assert await world.state(gang) == "binding"

    end = (await world.get(gang)).end
    assert end is not None
    await world.until(end)

    ended = await world.get(gang)
    assert (ended.state, ended.reason) == ("ended", "Completed")


async def test_a_gang_that_would_rather_end_is_ended_when_a_member_is_lost(world: World) -> None:
    gang = await active_gang(world, on_member_loss="release")
    world.agents["a1"].is_up = False
    await world.wait(10 * MINUTE)
    assert await world.state(gang) == "active"  # silence alone ends nothing
    world.agents["a1"].is_up = True
    world.agents["a1"].reboot()

    await world.settle()

    ended = await world.get(gang)
    assert (ended.state, ended.reason) == ("ended", "Lost")
    assert (await world.story(gang))[-3:] == ["degraded", "ending", "ended"]


async def test_a_hold_under_an_active_member_is_told_and_moves_nothing(world: World) -> None:
    gang = await active_gang(world, on_member_loss="replace")
    await world.join("a9", fabric="fabric-a.1")
    world.agents["a1"].hold(0)
    await world.wait(MINUTE)
    assert (await world.state(gang), await world.nodes_of(gang)) == ("active", "a1 a2")
    world.agents["a1"].holds.clear()

    await world.wait(MINUTE)

    assert (await world.story(gang))[-2:] == ["degraded", "recovered"]
