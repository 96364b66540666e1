"""A sign must last before it counts, and be gone for long before its node takes over for others."""

import pytest

from muster_coordinator.service import look
from tests.support.coordinator_agent import ScriptedAgent
from tests.support.service_world import MINUTE, SECOND, World, asks


async def flap(world: World, agent: ScriptedAgent, times: int) -> None:
    """Let a node show a fault and lose it again."""
    for _ in range(times):
        agent.hold(0)
        await world.settle()
        agent.holds.clear()
        await world.settle()


async def is_flapping(world: World, agent: ScriptedAgent) -> bool:
    return (await world.coordinator.database.read(look.node, world.clock.moment(), agent.node_id)).flapping


async def test_a_node_whose_fault_is_gone_takes_over_only_after_ten_minutes(world: World) -> None:
    """Until then a booking that only it could take waits for it, and keeps what it has."""
    await world.join("a1")
    booked = await world.reserve(asks(start="+5h"))
    spare = await world.join("a2")
    await flap(world, spare, 1)
    world.agents["a1"].hold(0)
    await world.wait(10 * MINUTE - 1)
    assert (await world.state(booked.id), await world.nodes_of(booked.id)) == ("placed", "a1")

    await world.wait(SECOND)
    await world.wait(30 * SECOND)

    assert (await world.state(booked.id), await world.nodes_of(booked.id)) == ("placed", "a2")


@pytest.mark.parametrize(("ms", "trusted"), [(10 * SECOND, True), (30 * SECOND, False)])
async def test_nobody_saw_for_less_than_half_a_minute_is_no_fault(
    world: World,
    ms: int,
    trusted: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    """F19: an NVML that answers late, as at the start of an agent, breaks nothing."""
    await world.join("a1")
    booked = await world.reserve(asks(start="+5h"))
    spare = await world.join("a2")
    spare.hold(0, cause="nvmlDown", code=10)
    await world.wait(0)
    await world.wait(ms)
    spare.holds.clear()
    await world.wait(SECOND)
    world.agents["a1"].hold(0)
    await world.wait(SECOND)

    assert await world.nodes_of(booked.id) == ("a2" if trusted else "a1")


async def test_at_the_start_itself_any_sound_node_is_better_than_none(world: World) -> None:
    await world.join("a1")
    booked = await world.reserve(asks(start="+5m"))
    spare = await world.join("a2")
    await flap(world, spare, 1)
    world.agents["a1"].hold(0)
    await world.wait(4 * MINUTE)
    assert await world.nodes_of(booked.id) == "a1"

    await world.wait(MINUTE)

    assert (await world.state(booked.id), await world.nodes_of(booked.id)) == ("active", "a2")


async def test_a_value_that_is_absent_for_less_than_half_a_minute_moves_nothing(world: World) -> None:
    """R52: settling after a reboot, close to the start."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, start="+10m"))
    await world.join("a9", fabric="fabric-a.1")
    node = world.agents["a1"]
    node.fabric = None
    await world.settle()
    await world.wait(29 * SECOND)
    assert await world.story(gang.id) == ["created", "placed", "at_risk"]
    node.fabric = "fabric-a.1"
    await world.wait(MINUTE)
    assert await world.story(gang.id) == ["created", "placed", "at_risk", "risk_cleared"]
    node.fabric = None
    await world.settle()

    await world.wait(30 * SECOND)

    assert await world.nodes_of(gang.id) == "a2 a9"


async def test_a_node_that_turns_bad_four_times_a_day_is_the_last_choice_until_the_day_is_over(world: World) -> None:
    """F18: no repair target, and the last choice for new work."""
    first, second = await world.join_all("a1 a2")
    await flap(world, first, 3)
    assert not await is_flapping(world, first)
    await flap(world, first, 1)
    assert await is_flapping(world, first)
    chosen = {await world.nodes_of((await world.reserve(asks(gpus=1, start=f"+{at}h"))).id) for at in range(1, 9)}
    assert chosen == {"a2"}
    booked = await world.reserve(asks(start="+20h", duration="1h"))
    assert await world.nodes_of(booked.id) == "a2"
    second.hold(0)
    await world.wait(5 * MINUTE)
    assert await world.nodes_of(booked.id) == "a2"  # nobody is moved to a node that comes and goes

    for _ in range(24):
        await world.wait(60 * MINUTE)

    assert not await is_flapping(world, first)


async def test_silence_counts_as_a_turn_for_the_worse_and_a_restart_too(world: World) -> None:
    node, _ = await world.join_all("a1 a2")
    await world.wait(10 * MINUTE)
    for _ in range(2):
        node.is_up = False
        await world.wait(21 * SECOND)
        node.is_up = True
        await world.settle()
    assert not await is_flapping(world, node)
    for _ in range(2):
        node.reboot()
        await world.settle()

    assert await is_flapping(world, node)
