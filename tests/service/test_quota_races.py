"""The ledger under races and crashes: nothing is charged twice, kept, or given back twice."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select

from muster_coordinator.service.accounts.bodies import QuotaRequest
from muster_coordinator.service.accounts.quota import quotas, set_quota
from muster_coordinator.service.changes.bodies import ShrinkRequest
from muster_coordinator.service.changes.shrink import shrink
from muster_coordinator.store.ledger_tables import CHARGE
from tests.support.coordinator_kill import KilledError, When, mortal
from tests.support.invariants import check
from tests.support.postgres import Cluster
from tests.support.service_world import HOUR, SECOND, Coordinator, World, asks, world_on


async def limit(world: World, gpus: float) -> None:
    await world.coordinator.write(set_quota, QuotaRequest(tenant_id="acme", gpus=gpus))


async def used(world: World) -> float:
    (view,) = await world.coordinator.database.read(quotas, "acme")
    return view.used_gpus


async def charges(world: World, reservation_id: str) -> list[tuple[int, bool]]:
    """Return each charge of a reservation: milli-GPU, and whether it was given back."""
    mine = select(CHARGE).where(CHARGE.c.reservation_id == reservation_id).order_by(CHARGE.c.number)
    rows = await world.coordinator.database.read(lambda connection: connection.execute(mine).all())
    return [(row.milli, row.returned_ms is not None) for row in rows]


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


async def test_two_coordinators_charge_no_more_than_the_limit_together(shared: tuple[World, Coordinator]) -> None:
    world, other = shared
    await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    await limit(world, 16)

    both = (world.coordinator, other)
    made = await asyncio.gather(*(both[number % 2].reserve(asks(duration="1h")) for number in range(8)))

    assert sorted(one.state == "pending" for one in made) == [False] * 2 + [True] * 6
    assert await used(world) == 16


async def test_a_cancel_that_meets_the_end_gives_back_once(shared: tuple[World, Coordinator]) -> None:
    """S38: two coordinators end one reservation at one instant."""
    world, other = shared
    await world.join("a1")
    await limit(world, 8)
    for turn in range(4):
        one = await world.reserve(asks(duration="1h", key=str(turn)))
        await world.settle()
        world.clock.ms += HOUR

        acts: list[Any] = [world.coordinator.passes.run_once(), other.cancel(one.id), other.cancel(one.id)]
        await asyncio.gather(*acts, return_exceptions=True)
        await world.settle()

        assert await world.state(one.id) == "ended"
        assert await charges(world, one.id) == [(8_000, True)]
        assert await used(world) == 0


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_commit_the_ledger_is_that_of_the_living(world: World, when: When) -> None:
    """S31: crash at every commit of create, shrink, cancel and the end of a gang that others wait behind."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await limit(world, 16)
    died, kill_at = True, 0
    while died:
        kill_at += 1
        died = await _lived(world, kill_at, when)
        assert await used(world) == 0

    assert kill_at > 8


async def _lived(world: World, kill_at: int, when: When) -> bool:
    await world.restart(lambda url: mortal(url, kill_at=kill_at, when=when))
    world.clock.ms += 16 * SECOND
    died = False
    key = f"{when}-{kill_at}"

    async def gang() -> str:
        return (await world.reserve(asks(2, key=key, duration="2h"))).id

    async def shrunk() -> None:
        if (await world.get(await gang())).gang.size == 2:
            await world.coordinator.write(shrink, await gang(), ShrinkRequest(to=1), world.coordinator.index)

    async def behind() -> None:
        await world.reserve(asks(2, key=f"{key}-b", duration="2h"))

    async def cancelled() -> None:
        for one in (await gang(), (await world.reserve(asks(2, key=f"{key}-b", duration="2h"))).id):
            await world.coordinator.cancel(one)

    for act in (gang, world.beat, behind, shrunk, world.beat, cancelled, world.settle):
        try:
            await act()
        except KilledError:
            died = True
            await world.restart()
            assert await world.coordinator.database.read(check, world.now_ms) == []
            world.clock.ms += 16 * SECOND
            await act()
            await world.settle()
    return died
