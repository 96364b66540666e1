"""A coordinator killed at any commit of create, bind, activate and cancel: its successor brings the same end about."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from tests.support.coordinator_kill import KilledError, MortalDatabase, When, mortal
from tests.support.invariants import check
from tests.support.service_world import SECOND, World, asks

STORY = ["created", "placed", "binding", "active", "ending", "ended"]
POINTS_MIN = 14  # one for the create, two more to place and bind, then reports and passes: fewer would be no script


async def lived(world: World, kill_at: int, when: When) -> tuple[list[str], bool]:
    """Run one life of a gang of two with a client that repeats what was not answered; tell whether anybody died."""
    await world.restart(partial(mortal, kill_at=kill_at, when=when))
    world.clock.ms += 16 * SECOND  # the former leader's lease is over
    died = False

    async def insisting(act: Callable[[], Awaitable[object]]) -> None:
        nonlocal died
        try:
            await act()
        except KilledError:
            died = True
            await world.restart()
            assert await world.coordinator.database.read(check, world.now_ms) == []
            world.clock.ms += 16 * SECOND
            await act()

    request = asks(2, key=f"{when}-{kill_at}", duration="2h")
    await insisting(lambda: world.reserve(request))
    await insisting(world.settle)
    gang = await world.reserve(request)
    assert gang.state == "active"
    await insisting(lambda: world.coordinator.cancel(gang.id))
    await insisting(world.settle)
    assert (await world.get(gang.id)).reason == "Cancelled"
    return await world.story(gang.id), died


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_every_commit_the_same_end_is_reached(world: World, when: When) -> None:
    agents = await world.join_all("a1 a2", fabric="fabric-a.1")
    points = 0
    died = True
    while died:
        points += 1
        story, died = await lived(world, points, when)

        assert story == STORY, f"killed {when} commit {points}"
        assert [agent.has for agent in agents] == [{}, {}]

    assert points > POINTS_MIN
    assert {len(agent.told) for agent in agents} == {points}  # each life bound each node once, whoever died
    assert isinstance(world.coordinator.database, MortalDatabase)
