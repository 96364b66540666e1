"""Policies and the audit log where others act at the same time, and where the process dies: on both engines."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Connection, delete, select, text, update

from muster_coordinator.api.admission import created
from muster_coordinator.service.access import audit, policies
from muster_coordinator.service.access.bodies import PolicyRequest
from muster_coordinator.service.access.caller import Caller
from muster_coordinator.service.access.guard import Guard
from muster_coordinator.service.bodies import ReservationRequest
from muster_coordinator.store.ledger_tables import AUDIT
from muster_coordinator.store.tables import RESERVATION
from muster_shared.errors import Code, Problem
from tests.support.coordinator import Parked
from tests.support.coordinator_kill import KilledError, When, mortal
from tests.support.postgres import Cluster
from tests.support.service_world import SECOND, Coordinator, World, asks, world_on

ADA = Caller("User", "tok_ada", "ada", ("tenant",), "acme")
CAP = PolicyRequest(
    name="cap-8",
    text='forbid (principal in Role::"tenant", action in Action::"book", resource) when { context.gpuCount > 8 };',
)


async def make(coordinator: Coordinator, request: ReservationRequest) -> str:
    """Create a reservation as Ada does."""
    guard = Guard(ADA, coordinator.services.book, "compute:reservation:create", coordinator.clock.ms, is_audited=True)
    return (await created(coordinator.services, request, guard)).id


async def kept(coordinator: Coordinator) -> list[str]:
    """Return what the rows of the audit log are about."""
    asked = select(AUDIT.c.object).order_by(AUDIT.c.number)
    return await coordinator.database.read(lambda connection: list(connection.execute(asked).scalars()))


def reservation_ids(connection: Connection) -> list[str]:
    return list(connection.execute(select(RESERVATION.c.id).order_by(RESERVATION.c.id)).scalars())


async def chain_all(coordinator: Coordinator, batch: int = 3) -> None:
    while await coordinator.database.write(audit.chain, batch):
        pass


async def chained(world: World, count: int) -> None:
    for number in range(count):
        await make(world.coordinator, asks(gpus=1, start=f"+{number + 1}h"))
    await chain_all(world.coordinator)


@pytest_asyncio.fixture
async def shared(postgres_cluster: Cluster, postgres_template: str) -> AsyncIterator[tuple[World, Coordinator]]:
    """Two coordinators on one PostgreSQL; SQLite refuses the second process."""
    name = postgres_cluster.create(postgres_template)
    async with world_on(postgres_cluster.url(name)) as world:
        other = Coordinator(world.url, world.clock, "other")
        yield world, other
        await other.database.close()
    postgres_cluster.drop(name)


async def test_two_replicas_that_chain_at_once_make_one_chain(shared: tuple[World, Coordinator]) -> None:
    world, other = shared
    await world.join("a1")

    async def busy(coordinator: Coordinator, first: int) -> None:
        for number in range(first, first + 6):
            await make(coordinator, asks(gpus=1, start=f"+{number}h"))
            await coordinator.database.write(audit.chain, 2)

    await asyncio.gather(busy(world.coordinator, 1), busy(other, 10))
    await asyncio.gather(chain_all(world.coordinator), chain_all(other))

    verdict = await other.database.read(audit.verify)
    assert (verdict.sound, verdict.rows, verdict.pending) == (True, 12, 0)


def blocked(connection: Connection) -> int:
    """Count the locks that somebody waits for."""
    return int(connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar_one())


async def test_a_row_that_is_committed_late_gets_its_place_after_those_that_a_replica_is_about_to_chain(
    shared: tuple[World, Coordinator],
) -> None:
    world, other = shared
    late, slow = Parked(), Parked()
    guard = Guard(ADA, other.services.book, "compute:reservation:cancel", world.now_ms)

    def write(connection: Connection, parked: Parked | None, subject: str) -> None:
        guard.subject = subject
        audit.write(connection, [guard.row()])
        if parked is not None:
            parked.stop(connection)

    def chain(connection: Connection) -> None:
        audit.chain(connection, 10)
        slow.stop(connection)

    async with asyncio.TaskGroup() as acts:
        first = acts.create_task(other.database.write(write, late, "first to be written"))
        await late.stopped.wait()
        await other.database.write(write, None, "first to be committed")
        acts.create_task(world.coordinator.database.write(chain))
        await slow.stopped.wait()
        late.go_on()
        await first
        acts.create_task(chain_all(other))
        while not await other.database.read(blocked):
            pass
        slow.go_on()

    verdict = await other.database.read(audit.verify)
    rows = await other.database.read(audit.listed, audit.Wanted(), after=0, limit=10)
    assert (verdict.sound, verdict.pending) == (True, 0)
    assert [row.object for row in rows] == ["first to be committed", "first to be written"]


async def test_what_one_replica_forbids_the_other_forbids_from_its_next_create_on(
    shared: tuple[World, Coordinator],
) -> None:
    world, other = shared
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await make(other, asks(2, start="+1h"))

    await world.coordinator.write(policies.add, CAP)

    with pytest.raises(Problem, match="'cap-8'") as refused:
        await make(other, asks(2, start="+3h"))
    assert refused.value.code is Code.FORBIDDEN


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_commit_a_create_and_its_row_are_both_there_or_neither(world: World, when: When) -> None:
    await world.join("a1")
    for kill_at in (1, 2, 3):
        await world.restart(partial(mortal, kill_at=kill_at, when=when))
        world.clock.ms += 16 * SECOND
        try:
            for number in range(2):
                await make(world.coordinator, asks(gpus=1, start=f"+{kill_at * 10 + number}h"))
                await world.coordinator.database.write(audit.chain, 10)
        except KilledError:
            await world.restart()

        made = await world.coordinator.database.read(reservation_ids)
        assert sorted(await kept(world.coordinator)) == made


@pytest.mark.parametrize(
    ("tamper", "broken_at"),
    [
        (update(AUDIT).where(AUDIT.c.seq == 3).values(outcome="FORBIDDEN"), 3),
        (update(AUDIT).where(AUDIT.c.seq == 2).values(hash="0" * 64), 2),
        (update(AUDIT).where(AUDIT.c.seq == 4).values(former_hash="f" * 64), 4),
        (delete(AUDIT).where(AUDIT.c.seq == 1), 1),
        (delete(AUDIT).where(AUDIT.c.seq == 3), 3),
        (update(AUDIT).where(AUDIT.c.seq == 5).values(seq=7), 5),
    ],
)
async def test_a_walk_over_the_chain_finds_the_row_that_a_hand_has_changed_x26(
    world: World, tamper: Any, broken_at: int
) -> None:
    await world.join("a1")
    await chained(world, 5)
    before = await world.coordinator.database.read(audit.verify)

    await world.coordinator.database.write(lambda connection: connection.execute(tamper) and None)

    after = await world.coordinator.database.read(audit.verify)
    assert (before.sound, before.rows) == (True, 5)
    assert (after.sound, after.broken_at) == (False, broken_at)
