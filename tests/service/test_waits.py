"""Whoever waits for a change can be stopped at any moment, that of the change included: else a shutdown hangs."""

import asyncio

import pytest

from muster_coordinator.notifier import Notifier
from tests.support.service_world import World, asks


async def test_a_wait_that_is_stopped_as_the_change_comes_has_stopped() -> None:
    notifier = Notifier()
    waiting = asyncio.create_task(notifier.wait(0, 60.0))
    await asyncio.sleep(0)

    notifier.beat()
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_long_poll_that_is_stopped_as_its_answer_comes_has_stopped(world: World) -> None:
    node, revs = await world.join("a1"), world.coordinator.revs
    await world.settle()
    waiting = asyncio.create_task(revs.wait_above(node.node_id, await world.coordinator.rev_of(node.node_id), 60.0))
    await asyncio.sleep(0)

    await world.coordinator.reserve(asks(1))
    await revs.run_once()
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
