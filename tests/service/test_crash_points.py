"""A coordinator killed at any commit of create, bind, activate and cancel: its successor brings the same end about."""

from functools import partial

import pytest

from tests.support.coordinator_kill import KilledError, MortalDatabase, When, mortal
from tests.support.invariants import check
from tests.support.service_world import SECOND, World, asks

STORY = ["created", "placed", "binding", "active", "ending", "ended"]
POINTS_MIN = 12  # create, start, two orders fetched, two binds, activation, cancel, two fetches, two releases, end


async def lived(world: World, kill_at: int, when: When) -> tuple[list[str], bool]:
    """Run one life of a gang with a client that repeats what was not answered; tell whether anybody died."""
    await world.restart(partial(mortal, kill_at=kill_at, when=when))
    world.clock.ms += 16 * SECOND  # the former leader's lease is over
    died = False
    request = asks(2, key=f"{when}-{kill_at}", duration="2h")
    turns = [agent.turn for agent in world.agents.values()]

    async def looked() -> None:
        await world.coordinator.passes.run_once()

    async def cancelled() -> None:
        await world.coordinator.cancel((await world.reserve(request)).id)

    for act in (looked, lambda: world.reserve(request), *turns, looked, cancelled, *turns, looked):
        try:
            await act()
        except KilledError:
            died = True
            await world.restart()
            assert await world.coordinator.database.read(check, world.now_ms) == []
            world.clock.ms += 16 * SECOND
            await act()
            await world.settle()
    gang = await world.reserve(request)
    assert (gang.state, gang.reason) == ("ended", "Cancelled")
    return await world.story(gang.id), died


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_every_commit_the_same_end_is_reached(world: World, when: When) -> None:
    """R06, S06: whoever dies, and whatever answer is lost, no start is forgotten and no member is kept."""
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
