"""A coordinator killed at any commit of a series: its successor makes each occurrence, and none twice."""

from contextlib import suppress
from functools import partial

import pytest

from muster_coordinator.service.series import create as series
from muster_coordinator.service.series import skip
from tests.support.coordinator_kill import KilledError, MortalDatabase, When, mortal
from tests.support.invariants import check
from tests.support.series_world import comes, look, states
from tests.support.service_world import SECOND, World

STORY = ["created", "skipped", "unskipped", "ended"]
POINTS_MIN = 10  # create; two occurrences made and noted; skip, unskip; one made and noted; cancel; a lease


async def lived(world: World, kill_at: int, when: When) -> tuple[str, bool]:
    """Run one life of a series with an owner who repeats what was not answered; tell whether anybody died."""
    await world.restart(partial(mortal, kill_at=kill_at, when=when))
    world.clock.ms += 16 * SECOND  # the former leader's lease is over
    request = comes("FREQ=DAILY;COUNT=2", at="22:00", idempotency_key=f"{when}-{kill_at}")
    died = False

    async def series_id() -> str:
        made = await world.coordinator.database.flow(series.create, world.clock.moment(), request)
        return made.series_id

    async def looked() -> None:
        await world.coordinator.passes.run_once()

    async def skipped() -> None:
        await world.coordinator.write(skip.skip, await series_id(), "2027-01-16")

    async def unskipped() -> None:
        await world.coordinator.write(skip.unskip, await series_id(), "2027-01-16")

    async def complete() -> None:
        assert states(await look(world, await series_id())) == ["placed"] * 2

    async def cancelled() -> None:
        await world.coordinator.write(series.cancel, await series_id(), None)

    for act in (series_id, looked, skipped, unskipped, looked, complete, cancelled):
        with suppress(KilledError):
            await act()
        database = world.coordinator.database
        if isinstance(database, MortalDatabase) and database.dead:
            died = True
            await world.restart()
            assert await world.coordinator.database.read(check, world.now_ms) == []
            world.clock.ms += 16 * SECOND
            await act()
            await world.settle()
    return await series_id(), died


@pytest.mark.parametrize("when", ["before", "after"])
async def test_r40_killed_at_every_commit_each_occurrence_is_made_once(world: World, when: When) -> None:
    await world.join("a1")
    points, died = 0, True

    while died:
        points += 1
        series_id, died = await lived(world, points, when)

        assert await world.story(series_id) == STORY, f"killed {when} commit {points}"
        ended = await look(world, series_id)
        assert (ended.state, ended.reason) == ("ended", "Cancelled")

    rows = (await world.rows())["reservation"]
    assert len(rows) == 3 * points  # two each, and the one that was skipped and made again
    assert points > POINTS_MIN
