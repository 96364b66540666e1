"""Two that want the same atoms: one wins whole, the other loses whole, and the database has the last word."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import pytest_asyncio
from sqlalchemy import Connection, event, update
from sqlalchemy.util import await_only

from muster_coordinator.service.admit import reserve
from muster_coordinator.service.again import retry
from muster_coordinator.service.nodes import operate
from muster_coordinator.store import read
from muster_coordinator.store.tables import RESERVATION
from tests.support.invariants import check
from tests.support.postgres import Cluster
from tests.support.service_world import Coordinator, World, asks, world_on


@pytest.fixture(autouse=True)
def _driver() -> None:
    """Keep SQLite's thread: calls in parallel shall meet."""


@pytest_asyncio.fixture
async def shared(postgres_cluster: Cluster, postgres_template: str) -> AsyncIterator[tuple[World, Coordinator]]:
    """Two coordinators on one PostgreSQL; SQLite refuses the second process."""
    name = postgres_cluster.create(postgres_template)
    async with world_on(postgres_cluster.url(name)) as world:
        other = Coordinator(world.url, world.clock, "other")
        yield world, other
        await other.database.close()
        assert await world.coordinator.database.read(check, world.now_ms) == []
    postgres_cluster.drop(name)


@contextmanager
def paused_before_commit(coordinator: Coordinator) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Stop a flow where its plan is made and its second transaction begins, until it may go on."""
    planned, go_on = asyncio.Event(), asyncio.Event()
    begun = 0

    def pause(_connection: Connection) -> None:
        nonlocal begun
        begun += 1
        if begun == 2:
            planned.set()
            await_only(go_on.wait())

    engine = coordinator.database.engine
    event.listen(engine, "begin", pause)
    yield planned, go_on
    event.remove(engine, "begin", pause)


async def test_a_plan_that_was_overtaken_is_made_again(shared: tuple[World, Coordinator]) -> None:
    """Blazar: both saw the host free; one wins, the other takes what is left."""
    world, other = shared
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await world.join_all("b1 b2", fabric="fabric-b.1")
    flow = other.database.flow(reserve, world.clock.moment(), asks(2, tenant="slow"), other.index)
    with paused_before_commit(other) as (planned, go_on):
        slow = asyncio.create_task(flow)
        await planned.wait()
        fast = await world.reserve(asks(2, tenant="fast"))
        go_on.set()
        admitted = await slow

    late = await world.get(admitted.reservation_id)
    assert (fast.state, late.state) == ("binding", "placed")
    assert not {one.node_id for one in fast.members} & {one.node_id for one in late.members}
    assert await world.story(late.id) == ["created", "placed"]


async def test_a_plan_that_was_overtaken_by_the_last_room_says_what_blocks_it(
    shared: tuple[World, Coordinator],
) -> None:
    world, other = shared
    await world.join_all("a1 a2", fabric="fabric-a.1")
    flow = other.database.flow(reserve, world.clock.moment(), asks(2, tenant="slow"), other.index)
    with paused_before_commit(other) as (planned, go_on):
        slow = asyncio.create_task(flow)
        await planned.wait()
        await world.reserve(asks(gpus=1, tenant="fast"))
        go_on.set()
        admitted = await slow

    late = await world.get(admitted.reservation_id)
    assert (late.state, late.members) == ("pending", [])
    assert late.condition is not None
    assert late.condition.reason == "doesNotFit"


async def test_every_node_that_refused_in_a_round_is_named_and_left_out(shared: tuple[World, Coordinator]) -> None:
    """Two of three planned nodes are taken at once: one more round is enough, and it does without both."""
    world, other = shared
    await world.coordinator.write(operate.create_pool, "brisk", {"max_attempts": 2})
    for name in ["a1", "a2", "a3", "a4", "a5"]:
        await world.join(name, fabric="fabric-a.1", pool="brisk")
    flow = other.database.flow(reserve, world.clock.moment(), asks(3, tenant="slow", pool_id="brisk"), other.index)
    with paused_before_commit(other) as (planned, go_on):
        slow = asyncio.create_task(flow)
        await planned.wait()
        taken = await world.reserve(asks(2, tenant="fast", pool_id="brisk"))
        go_on.set()
        admitted = await slow

    late = await world.get(admitted.reservation_id)
    assert (len(late.members), late.state) == (3, "placed")
    assert not {one.node_id for one in late.members} & {one.node_id for one in taken.members}


async def test_a_cancel_between_plan_and_commit_wins(shared: tuple[World, Coordinator]) -> None:
    world, other = shared
    node = await world.join("a1")
    await world.cordon(node)
    asked = await world.reserve(asks())
    await world.coordinator.write(operate.set_intent, node.node_id, "schedulable", None)
    pool_row = await other.database.read(read.known_pool, asked.pool_id)
    snapshot = await other.database.read(read.snapshot, pool_row, world.now_ms)
    with paused_before_commit(other) as (planned, go_on):
        trying = asyncio.create_task(other.database.flow(retry, world.clock.moment(), asked.id, snapshot, other.index))
        await planned.wait()
        await world.coordinator.cancel(asked.id)
        go_on.set()
        placed = await trying

    assert (placed.is_placed, await world.state(asked.id)) == (False, "ended")


@pytest.mark.parametrize("size", [2, 4])
async def test_a_plan_for_another_size_is_not_booked(shared: tuple[World, Coordinator], size: int) -> None:
    """S05: what is asked is read again in the transaction that places, so that no gang is booked in part."""
    world, other = shared
    agents = await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    for agent in agents:
        await world.cordon(agent)
    asked = await world.reserve(asks(3, start="+1h"))
    for agent in agents:
        await world.coordinator.write(operate.set_intent, agent.node_id, "schedulable", None)
    pool_row = await other.database.read(read.known_pool, asked.pool_id)
    snapshot = await other.database.read(read.snapshot, pool_row, world.now_ms)

    def resized(connection: Connection) -> None:
        connection.execute(update(RESERVATION).where(RESERVATION.c.id == asked.id).values(size=size))

    with paused_before_commit(other) as (planned, go_on):
        trying = asyncio.create_task(other.database.flow(retry, world.clock.moment(), asked.id, snapshot, other.index))
        await planned.wait()
        await world.coordinator.database.write(resized)
        go_on.set()
        tried = await trying
    refused = await world.get(asked.id)
    await world.settle()

    assert (tried.is_placed, refused.state, refused.members) == (False, "pending", [])
    assert len((await world.get(asked.id)).members) == size


async def test_the_loser_of_every_round_is_told_that_it_lost_a_race(world: World) -> None:
    """`lost race` and `does not fit` are different answers."""
    await world.coordinator.write(operate.create_pool, "hasty", {"max_attempts": 1})
    node = await world.join("a1", pool="hasty")
    await world.cordon(node)
    asked = await world.reserve(asks(pool_id="hasty"))
    await world.coordinator.write(operate.set_intent, node.node_id, "schedulable", None)
    pool_row = await world.coordinator.database.read(read.pool, "hasty")
    assert pool_row is not None
    stale = await world.coordinator.database.read(read.snapshot, pool_row, world.now_ms)
    await world.reserve(asks(gpus=1, pool_id="hasty"))

    placed = await world.coordinator.database.flow(
        retry, world.clock.moment(), asked.id, stale, world.coordinator.index
    )

    late = await world.get(asked.id)
    assert (placed.is_placed, late.state) == (False, "pending")
    assert late.condition is not None
    assert (late.condition.reason, late.condition.message) == (
        "lostRace",
        "lost the race for 1 node in every round; it is tried again by itself",
    )


async def test_a_lost_race_counts_every_node_that_refused(shared: tuple[World, Coordinator]) -> None:
    world, other = shared
    await world.coordinator.write(operate.create_pool, "hasty", {"max_attempts": 1})
    for name in ["a1", "a2", "a3"]:
        await world.join(name, fabric="fabric-a.1", pool="hasty")
    flow = other.database.flow(reserve, world.clock.moment(), asks(3, tenant="slow", pool_id="hasty"), other.index)
    with paused_before_commit(other) as (planned, go_on):
        slow = asyncio.create_task(flow)
        await planned.wait()
        await world.reserve(asks(2, gpus=1, tenant="fast", pool_id="hasty"))
        go_on.set()
        admitted = await slow

    late = await world.get(admitted.reservation_id)
    assert late.condition is not None
    assert (late.condition.reason, late.members) == ("lostRace", [])
    assert late.condition.message.startswith("lost the race for 2 nodes in every round")


async def test_many_at_once_for_one_free_atom_are_one_placed_and_the_rest_pending(world: World) -> None:
    await world.join("a1", gpus=1)

    made = await asyncio.gather(*(world.reserve(asks(gpus=1, tenant=f"t{number}")) for number in range(20)))

    assert sorted(one.state for one in made) == ["binding", *["pending"] * 19]


async def test_two_gangs_of_every_node_at_once_are_one_and_none(world: World) -> None:
    """volcano 3373: never half and half."""
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")

    for _ in range(4):
        made = await asyncio.gather(*(world.reserve(asks(3, tenant=f"t{number}")) for number in range(2)))
        assert sorted(len(one.members) for one in made) == [0, 3]
        for one in made:
            await world.coordinator.cancel(one.id)
        await world.settle()


async def test_many_gangs_of_many_sizes_all_finish_and_none_is_ever_partial(world: World) -> None:
    """scheduler-plugins 117: six clients on two nodes, each gang alone would fit."""
    await world.join_all("a1 a2", fabric="fabric-a.1")

    async def client(number: int) -> list[str]:
        made = []
        for turn in range(2):
            size, gpus = 1 + (number + turn) % 2, 1 + (3 * number + turn) % 8
            made.append((await world.reserve(asks(size, gpus=gpus, tenant=f"t{number}"))).id)
        return made

    waiting = {one for made in await asyncio.gather(*map(client, range(6))) for one in made}
    for _ in range(40):
        assert await world.coordinator.database.read(check, world.now_ms) == []
        await world.settle()
        running = [one for one in waiting if await world.state(one) == "active"]
        for one in running:
            await world.coordinator.release(one)
        waiting.difference_update(running)
        if not waiting:
            break

    assert waiting == set()


@pytest.mark.parametrize("changes", [("a2",), ("a2", "a3"), ("a2", "a3", "a2")], ids=str)
async def test_a_gang_never_spans_an_old_and_a_new_value(world: World, changes: tuple[str, ...]) -> None:
    """volcano 5887: labels change after the plan was made."""
    agents = await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    for agent in agents:
        await world.cordon(agent)
    asked = await world.reserve(asks(2, start="+1h"))
    for agent in agents:
        await world.coordinator.write(operate.set_intent, agent.node_id, "schedulable", None)
    pool_row = await world.coordinator.database.read(read.pool, "default")
    assert pool_row is not None
    stale = await world.coordinator.database.read(read.snapshot, pool_row, world.now_ms)
    for name in changes:
        agent = world.agents[name]
        agent.fabric = "fabric-b.1" if agent.fabric == "fabric-a.1" else "fabric-a.1"
        await agent.report()

    await world.coordinator.database.flow(retry, world.clock.moment(), asked.id, stale, world.coordinator.index)
    await world.settle()

    placed = await world.get(asked.id)
    assert len(placed.members) == 2
    values = {world.agents[one.node_name].fabric for one in placed.members}
    assert values == {placed.topology_value}
