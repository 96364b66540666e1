"""A gang is booked whole or not at all, whoever is faster on whichever member."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Connection, delete, event, insert, select

from muster_coordinator.core.placement.pipeline import Placed
from muster_coordinator.service.bodies import ReservationView
from muster_coordinator.service.nodes import operate
from muster_coordinator.store import commit, read, relay
from muster_coordinator.store.commit import Lost
from muster_coordinator.store.tables import ALLOCATION, BOOKING, EVENT
from muster_shared.time import Window
from muster_shared.wire import FABRIC_DOMAIN
from tests.support.coordinator import Rows, rows
from tests.support.service_world import HOUR, START_MS, World, asks, world_on

WINDOW = Window(START_MS + HOUR, START_MS + 2 * HOUR)
ALL = 0b1111_1111


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with world_on(database_url) as world:
        yield world


async def pending_gang(world: World) -> ReservationView:
    """Three nodes, a gang of three that was never placed, and a rival's allocation that has booked nothing yet."""
    agents = await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    rival = await world.reserve(asks(gpus=1, start="+50h", tenant="rival"))
    await world.coordinator.cancel(rival.id)
    await world.coordinator.database.write(lambda connection: connection.execute(delete(BOOKING)))
    for agent in agents:
        await world.cordon(agent)
    gang = await world.reserve(asks(3, start="+1h"))
    assert gang.state == "pending"
    for agent in agents:
        await world.coordinator.write(operate.set_intent, agent.node_id, "schedulable", None)
    return gang


def book(connection: Connection, world: World, reservation_id: str, mask: int = ALL) -> Lost | None:
    pool_row = read.pool(connection, "default", lock=True)
    found = read.reservation(connection, reservation_id, lock=True)
    assert pool_row is not None
    assert found is not None
    members = [Placed(agent.node_id, mask, ((FABRIC_DOMAIN, "fabric-a.1"),)) for agent in world.agents.values()]
    # As if planned before anything had changed: every member is looked at again.
    return commit.book(connection, world.clock.moment(), pool_row, found[0], members, WINDOW, planned_version=0)


@pytest.mark.parametrize("faster", ["a1", "a2", "a3"])
async def test_losing_the_race_on_any_member_leaves_nothing_of_the_gang(world: World, faster: str) -> None:
    """The rival's row appears after the last check and before the savepoint: only the database can see it."""
    gang = await pending_gang(world)
    node_id = world.agents[faster].node_id

    def body(connection: Connection) -> tuple[Lost | None, Rows, Rows]:
        allocation_id = connection.execute(select(ALLOCATION.c.id)).scalar_one()

        def appear(connection: Connection, _name: str | None) -> None:
            connection.execute(
                insert(BOOKING).values(
                    allocation_id=allocation_id, word=0, node_id=node_id, reservation_id="rival", mask=1,
                    start_ms=WINDOW.start_ms, end_ms=WINDOW.end_ms, live=True,
                )
            )  # fmt: skip

        before = rows(connection)
        event.listen(connection, "savepoint", appear)
        lost = book(connection, world, gang.id)
        event.remove(connection, "savepoint", appear)
        return lost, before, rows(connection)

    lost, before, after = await world.coordinator.database.write(body)

    assert lost == Lost(frozenset(agent.node_id for agent in world.agents.values()))
    assert {name: found for name, found in after.items() if name != "booking"} == {
        name: found for name, found in before.items() if name != "booking"
    }
    assert len(after["booking"]) == len(before["booking"]) + 1


async def test_a_member_that_became_unfit_after_the_plan_refuses_by_name(world: World) -> None:
    gang = await pending_gang(world)
    first, second, third = world.agents.values()
    first.fabric = "fabric-b.1"
    await first.report()
    third.hold(0)
    await third.report()
    before = await world.rows()

    lost = await world.coordinator.database.write(book, world, gang.id)

    assert lost == Lost(frozenset({first.node_id, third.node_id}))
    assert second.node_id not in lost.node_ids
    assert await world.rows() == before


async def test_a_booked_gang_is_one_allocation_on_each_node_for_the_window(world: World) -> None:
    gang = await pending_gang(world)

    assert await world.coordinator.database.write(book, world, gang.id, ALL & ~1) is None

    def live(connection: Connection) -> list[tuple[Any, ...]]:
        wanted = select(BOOKING.c.node_id, BOOKING.c.mask, BOOKING.c.start_ms, BOOKING.c.end_ms).where(BOOKING.c.live)
        return [tuple(row) for row in connection.execute(wanted.order_by(BOOKING.c.node_id))]

    booked = await world.coordinator.database.read(live)
    assert booked == [
        (node_id, ALL & ~1, WINDOW.start_ms, WINDOW.end_ms)
        for node_id in sorted(agent.node_id for agent in world.agents.values())
    ]


async def test_events_are_numbered_once_in_the_order_of_their_commit(world: World) -> None:
    await world.join_all("a1 a2")

    published = [await world.coordinator.database.write(relay.publish, 3) for _ in range(3)]
    total = await world.count_events()

    def seqs(connection: Connection) -> list[int]:
        return list(connection.execute(select(EVENT.c.seq).order_by(EVENT.c.number)).scalars())

    assert published == [3, total - 3, 0]
    assert await world.coordinator.database.read(seqs) == list(range(1, total + 1))
