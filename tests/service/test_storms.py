"""Many writers at once, on every engine: a gang has no member or all, and whoever waits is served in the end."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from random import Random

import pytest
import pytest_asyncio
from sqlalchemy import Connection, func, select

from muster_coordinator.service import look
from muster_coordinator.service.bodies import ReservationView
from muster_coordinator.store.tables import ALLOCATION, RESERVATION
from tests.support.coordinator_agent import ScriptedAgent
from tests.support.invariants import check
from tests.support.service_world import MINUTE, Coordinator, World, asks

WRITERS = 8
GANGS = 60
ROUNDS_MAX = 80


@pytest.fixture(autouse=True)
def _driver() -> None:
    """Keep SQLite's thread: calls in parallel shall meet."""


@pytest_asyncio.fixture
async def doors(world: World) -> AsyncIterator[Sequence[Coordinator]]:
    """Two coordinators where the engine allows them, else the one."""
    if world.coordinator.database.is_sqlite:
        yield [world.coordinator]
        return
    other = Coordinator(world.url, world.clock, "other")
    yield [world.coordinator, other]
    await other.database.close()


def partial(connection: Connection) -> list[tuple[str, int, int]]:
    """Return the gangs that have neither no member nor all: id, size and members."""
    live = select(ALLOCATION.c.reservation_id, func.count().label("members")).where(ALLOCATION.c.live)
    counted = live.group_by(ALLOCATION.c.reservation_id).subquery()
    found = select(RESERVATION.c.id, RESERVATION.c.size, counted.c.members).join(
        counted, counted.c.reservation_id == RESERVATION.c.id
    )
    return [(row.id, row.size, row.members) for row in connection.execute(found) if row.members != row.size]


def active(connection: Connection) -> list[str]:
    """Return the reservations that run now, oldest first."""
    found = select(RESERVATION.c.id).where(RESERVATION.c.state == "active").order_by(RESERVATION.c.id)
    return list(connection.execute(found).scalars())


async def watched(doors: Sequence[Coordinator], writers: Iterable[asyncio.Task[list[str]]]) -> list[str]:
    """Look at every instant until all writers are done; return what they made."""
    tasks = list(writers)
    looks = 0
    while not all(task.done() for task in tasks):
        assert await doors[-1].database.read(partial) == []
        looks += 1
    assert looks > 1, "somebody looked while they wrote"
    return [one for task in tasks for one in await task]


async def test_sixty_gangs_of_eight_writers_all_finish(world: World, doors: Sequence[Coordinator]) -> None:
    """S02: no gang ever waits with a part of its nodes; releases and cancels let the next ones in."""
    await world.join_all("a1 a2 a3 a4 a5 a6 a7 a8", fabric="fabric-a.1", gpus=1)
    await world.join_all("b1 b2 b3 b4 b5 b6 b7 b8", fabric="fabric-b.1", gpus=1)
    sizes = [1 + Random(7).randrange(8) if at else 8 for at in range(GANGS)]

    async def writer(number: int) -> list[str]:
        door = doors[number % len(doors)]
        mine = sizes[number::WRITERS]
        return [(await door.reserve(asks(size, gpus=1, tenant=f"t{number}"))).id for size in mine]

    made = await watched(doors, [asyncio.create_task(writer(number)) for number in range(WRITERS)])
    waiting = set(made)
    for turn in range(ROUNDS_MAX):
        await world.settle()
        assert await world.coordinator.database.read(partial) == []
        assert await world.coordinator.database.read(check, world.now_ms) == []
        running = await world.coordinator.database.read(active)
        assert running, "whoever waits first gets what is free"
        ends = [doors[at % len(doors)].release(one) for at, one in enumerate(running)]
        if turn == 0:
            ends.append(doors[-1].cancel(next(one for one in made[::-1] if one not in running)))
        ended = await asyncio.gather(*ends)
        waiting.difference_update(one.id for one in ended)
        if not waiting:
            break

    assert (len(made), waiting) == (GANGS, set())


async def test_eight_writers_that_place_and_cancel_leave_nothing_behind(
    world: World, doors: Sequence[Coordinator]
) -> None:
    for fabric in "ab":
        names = " ".join(f"{fabric}{number}" for number in range(1, 9))
        await world.join_all(names, fabric=f"fabric-{fabric}.1", gpus=2)

    async def writer(number: int) -> list[str]:
        door, chance = doors[number % len(doors)], Random(number)
        made: list[str] = []
        for _ in range(6):
            size, gpus = chance.randint(1, 8), chance.randint(1, 2)
            start = chance.choice(("+10m", "+30m", "+70m"))
            one = await door.reserve(asks(size, gpus=gpus, start=start, tenant=f"t{number}"))
            assert len(one.members) in {0, size}
            made.append(one.id)
            if chance.random() < 0.5:
                await door.cancel(made[-1])
        return made

    made = await watched(doors, [asyncio.create_task(writer(number)) for number in range(WRITERS)])
    placed = [one for one in made if await world.state(one) == "placed"]
    assert placed
    assert await world.coordinator.database.read(check, world.now_ms) == []
    for one in made:
        if await world.state(one) != "ended":
            await doors[-1].cancel(one)

    (pool,) = await world.coordinator.database.read(look.pools, world.clock.moment())
    assert (pool.reserved, pool.active, pool.free) == (0, 0, 32)


async def test_nothing_is_held_for_a_gang_of_which_only_a_part_fits(world: World) -> None:
    """S08: neither booked, nor told, nor active; the free node goes to whoever fits."""
    free, _ = await world.join_all("a1 a2", fabric="fabric-a.1")
    await world.label(world.agents["a2"], kept="yes")
    first = await world.reserve(asks(node_selector={"kept": "yes"}, gpus=1))
    gang = await world.reserve(asks(2))
    await world.wait(MINUTE)
    seen = await world.get(gang.id)
    other = await world.reserve(asks(tenant="other", duration="10m"))
    await world.settle()

    assert (seen.state, seen.members, free.told[:-1]) == ("pending", [], [])
    assert await world.nodes_of(other.id) == "a1"
    await world.coordinator.release(first.id)
    await world.settle()
    assert await world.state(gang.id) == "pending"
    await world.coordinator.release(other.id)
    await world.settle()
    assert await world.state(gang.id) == "active"


FLIPS = {
    "in one batch": (("a3", "a4"),),
    "in two batches": (("a3",), ("a4",)),
    "and back again": (("a3", "a4"), ("a3",), ("a4",), ("a1", "a2"), ("a1",), ("a2",)),
}


@pytest.mark.parametrize("flips", FLIPS.values(), ids=FLIPS.keys())
async def test_no_gang_spans_values_that_change_while_it_is_planned(
    world: World, doors: Sequence[Coordinator], flips: Sequence[Sequence[str]]
) -> None:
    """S45: labels change in batches while four writers place gangs; each value is one group."""
    await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1", gpus=4)
    await world.join_all("b1 b2", fabric="fabric-b.1", gpus=4)

    def other(agent: ScriptedAgent) -> str:
        return "fabric-b.1" if agent.fabric == "fabric-a.1" else "fabric-a.1"

    async def relabelled() -> list[str]:
        for batch in flips:
            for name in batch:
                world.agents[name].fabric = other(world.agents[name])
            await asyncio.gather(*(world.agents[name].report() for name in batch))
        return []

    async def writer(number: int) -> list[str]:
        door = doors[number % len(doors)]
        return [(await door.reserve(asks(2, gpus=1, start=f"+{at + 1}h", tenant=f"t{number}"))).id for at in range(4)]

    tasks = [asyncio.create_task(relabelled()), *(asyncio.create_task(writer(number)) for number in range(4))]
    made = await watched(doors, tasks)
    await world.settle()

    for one in made:
        placed = await world.get(one)
        assert {world.agents[member.node_name].fabric for member in placed.members} == values(placed)
    (pool,) = await world.coordinator.database.read(look.pools, world.clock.moment())
    assert set(pool.largest_gang) == {agent.fabric for agent in world.agents.values()}


def values(placed: ReservationView) -> set[str | None]:
    """Return the value that every member was booked with."""
    assert placed.state == "placed"
    return {placed.topology_value}
