"""Extend and shrink against whoever changes or books at the same time: one order for all, and nothing half done."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Connection

from muster_coordinator.clock import Moment
from muster_coordinator.service.bodies import ReservationView
from muster_coordinator.service.changes import cancel as change
from muster_coordinator.service.changes.bodies import ExtendRequest, ShrinkRequest
from muster_coordinator.service.changes.extend import extend
from muster_coordinator.service.changes.shrink import shrink
from muster_shared.errors import Code, Problem
from tests.support.coordinator import Parked
from tests.support.extending import booked_until, extended, running
from tests.support.invariants import check
from tests.support.service_world import HOUR, MINUTE, Coordinator, World, asks, end_of
from tests.support.virtual_clock import settle

Body = Callable[[Connection, Moment], object]


@pytest.fixture(autouse=True)
def _driver() -> None:
    """Keep SQLite's thread: calls in parallel shall meet."""


@pytest_asyncio.fixture
async def doors(world: World) -> AsyncIterator[Sequence[Coordinator]]:
    """Two coordinators where the engine allows them, else the one."""
    if world.coordinator.database.is_sqlite:
        yield [world.coordinator, world.coordinator]
        return
    other = Coordinator(world.url, world.clock, "other")
    yield [world.coordinator, other]
    await other.database.close()


async def meet(doors: Sequence[Coordinator], first: Body, second: Body) -> list[object]:
    """Let the second begin while the first has done its work and not committed it; return what each of them got."""
    parked = Parked()

    def stopped(connection: Connection, at: Moment) -> object:
        try:
            return first(connection, at)
        finally:
            parked.stop(connection)

    ahead = asyncio.create_task(doors[0].write(stopped))
    await parked.stopped.wait()
    behind = asyncio.create_task(doors[1].write(second))
    await settle()
    parked.go_on()
    return list(await asyncio.gather(ahead, behind, return_exceptions=True))


def calls(world: World, one: ReservationView) -> dict[str, Body]:
    """Return everything that an owner may call, by name."""
    index = world.coordinator.index
    return {
        "extend": lambda connection, at: extend(connection, at, one.id, ExtendRequest(by="1h")),
        "shrink": lambda connection, at: shrink(connection, at, one.id, ShrinkRequest(to=1), index),
        "cancel": lambda connection, at: change.cancel(connection, at, one.id, index),
        "release": lambda connection, at: change.release(connection, at, one.id, index),
    }


def is_conflict(answer: object) -> bool:
    return isinstance(answer, Problem) and answer.code is Code.CONFLICT


@pytest.mark.parametrize("ending", ["cancel", "release"])
@pytest.mark.parametrize("changing", ["extend", "shrink"])
@pytest.mark.parametrize("ends_first", [True, False], ids=["ends first", "ends second"])
async def test_an_end_and_a_change_at_once_are_one_after_the_other(
    world: World, doors: Sequence[Coordinator], ending: str, changing: str, *, ends_first: bool
) -> None:
    """R05, R07: cancel or release against extend; exactly one final state, and nothing stays booked or bound."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await running(world, 2)
    call = calls(world, gang)
    order = [call[ending], call[changing]] if ends_first else [call[changing], call[ending]]

    answers = await meet(doors, *order)
    await world.settle()

    after = await world.get(gang.id)
    assert (after.state, after.reason) == ("ended", {"cancel": "Cancelled", "release": "Released"}[ending])
    assert is_conflict(answers[1]) is ends_first
    assert not any(isinstance(one, Exception) for one in answers[:1])
    assert await booked_until(world, gang.id) == set()
    assert [agent.has for agent in world.agents.values()] == [{}, {}]
    told = {"extend": "extended", "shrink": "shrunk"}[changing]
    assert (told in await world.story(gang.id)) is not ends_first


async def test_two_extensions_at_once_are_both_granted_or_one_is_refused(
    world: World, doors: Sequence[Coordinator]
) -> None:
    """Two `by` add up; where only one fits, the other is told so."""
    await world.join("a1")
    first = await running(world)
    await world.reserve(asks(start="+150m", tenant="other"))
    by_hour = calls(world, first)["extend"]

    answers = await meet(doors, by_hour, by_hour)

    assert is_conflict(answers[1])
    assert (await world.get(first.id)).end == end_of(first) + HOUR


@pytest.mark.parametrize("extends_first", [True, False])
async def test_an_extension_and_a_booking_behind_it_never_both_have_the_atoms(
    world: World, doors: Sequence[Coordinator], *, extends_first: bool
) -> None:
    """R10, R22: the one that comes second is refused, or waits."""
    await world.join("a1")
    first = await running(world)
    behind = asks(start=end_of(first) + 10 * MINUTE, tenant="other")
    await doors[1].get(first.id)

    if extends_first:
        await extended(world, first.id, by="30m")
        assert (await doors[1].reserve(behind)).state == "pending"
        assert (await world.get(first.id)).end == end_of(first) + 30 * MINUTE
    else:
        assert (await doors[1].reserve(behind)).state == "placed"
        with pytest.raises(Problem):
            await extended(world, first.id, by="30m")
        assert (await world.get(first.id)).end == first.end


async def test_refused_extensions_in_a_loop_give_nothing_away(world: World, doors: Sequence[Coordinator]) -> None:
    """R21: a refused alter released the nodes inside the scheduler, so that others were placed on them."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await running(world, 2)
    await world.reserve(asks(2, start=end_of(gang), tenant="other"))

    async def refused() -> int:
        count = 0
        for _ in range(10):
            answer = await asyncio.gather(extended(world, gang.id, by="1m"), return_exceptions=True)
            count += is_conflict(answer[0])
        return count

    async def creates(door: Coordinator) -> list[str]:
        return [(await door.reserve(asks(gpus=1, duration="30m", tenant=f"t{n}"))).state for n in range(10)]

    count, made = await asyncio.gather(refused(), asyncio.gather(*(creates(door) for door in doors)))

    assert count == 10
    assert {state for states in made for state in states} == {"pending"}
    after = await world.get(gang.id)
    assert (after.state, after.end, after.members) == ("active", gang.end, gang.members)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_comes_at_once_leaves_every_invariant_standing(
    world: World, doors: Sequence[Coordinator], seed: int
) -> None:
    """Creates, extensions, shrinks, releases and cancels of eight callers on six nodes."""
    chance = Random(seed)
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    await world.join_all("b1 b2 b3", fabric="fabric-b.1")
    made = [await running(world, chance.choice((1, 2, 3)), gpus=chance.choice((2, 4))) for _ in range(8)]

    async def caller(number: int) -> list[object]:
        door, answers = doors[number % len(doors)], list[object]()
        for _ in range(5):
            one = chance.choice(made)
            body = chance.choice(list(calls(world, one).values()))
            work: Any = door.reserve(asks(gpus=2, start="+1h")) if chance.random() < 0.2 else door.write(body)
            answers += await asyncio.gather(work, return_exceptions=True)
        return answers

    answers = [one for told in await asyncio.gather(*map(caller, range(8))) for one in told]

    assert await world.coordinator.database.read(check, world.now_ms) == []
    assert all(isinstance(one, Problem) for one in answers if isinstance(one, BaseException))
    await world.settle()
    await world.wait(12 * HOUR)
    assert {await world.state(one.id) for one in made} == {"ended"}
