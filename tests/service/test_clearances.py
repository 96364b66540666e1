"""An operator ends a hold: told to the agent, obeyed by it, and never stretched to a later fault."""

import pytest

from muster_coordinator.service.nodes import operate
from muster_shared.errors import Code, Problem
from muster_shared.wire import Hold
from tests.support.service_world import World


def fault(since_ms: int) -> Hold:
    return Hold(device="GPU-a1-0000", cause="xid", code=79, since_ms=since_ms, clears_by="nodeRebootVerified")


async def test_a_word_reaches_the_agent_until_its_report_is_without_the_hold(world: World) -> None:
    node = await world.join("a1")
    node.holds = [fault(1_000)]
    await world.settle()

    await world.coordinator.write(operate.clear_holds, "a1", None, "xid", "replaced the riser")
    told = await world.coordinator.desired_of(node.node_id)
    node.holds = []
    await world.settle()
    after = await world.coordinator.desired_of(node.node_id)

    assert [(word.device, word.cause, word.code, word.since_ms) for word in told.cleared] == [
        ("GPU-a1-0000", "xid", 79, 1_000)
    ]
    assert after.cleared == []


async def test_a_word_does_not_end_a_fault_that_was_raised_after_it(world: World) -> None:
    node = await world.join("a1")
    node.holds = [fault(1_000)]
    await world.settle()
    await world.coordinator.write(operate.clear_holds, "a1", "GPU-a1-0000", None)
    node.holds = [fault(2_000)]
    await world.settle()

    assert (await world.coordinator.desired_of(node.node_id)).cleared == []


@pytest.mark.parametrize(("device", "cause"), [(None, "ecc"), ("GPU-a1-0007", None), (None, None)])
async def test_a_hold_that_is_not_there_cannot_be_ended(world: World, device: str | None, cause: str | None) -> None:
    node = await world.join("a1")
    if device or cause:
        node.holds = [fault(1_000)]
    await world.settle()
    before = await world.coordinator.rev_of(node.node_id)

    with pytest.raises(Problem) as refusal:
        await world.coordinator.write(operate.clear_holds, "a1", device, cause)

    assert refusal.value.code is Code.NOT_FOUND
    assert await world.coordinator.rev_of(node.node_id) == before
