"""The figures that alerts are made of, counted from what is stored."""

from collections.abc import Mapping

from sqlalchemy import Connection, delete

from muster_coordinator.service.outward.figures import SILENT_MAX, PoolFigures, figures
from muster_coordinator.service.outward.tally import Tally
from muster_coordinator.store import relay
from muster_coordinator.store.tables import EVENT
from tests.support.service_world import HOUR, MINUTE, World, asks
from tests.support.upkeep_world import declare


async def figured(world: World, tally: Tally | None = None) -> PoolFigures:
    """Return the figures of the only pool, as they are now."""
    at, index = world.clock.moment(), world.coordinator.index
    found = await world.coordinator.database.read(figures, at, index, tally or Tally())
    (pool,) = found.pools
    return pool


async def test_a_release_that_is_not_confirmed_in_time_is_overdue(world: World) -> None:
    (agent,) = await world.join_all("n1")
    running = await world.reserve(asks())
    await world.settle()
    agent.lets_go = False
    await world.coordinator.release(running.id)
    before = await figured(world)

    await world.wait(4 * MINUTE)
    after = await figured(world)

    assert (before.releases_overdue, after.releases_overdue) == (0, 1)
    assert after.states["ending"] == 1


async def test_a_silent_node_is_named_and_its_booking_at_risk(world: World) -> None:
    agents = await world.join_all("n1 n2 n3", fabric="fabric-a.1")
    later = await world.reserve(asks(2, start="+20h"))
    silent = next(agent for agent in agents if agent.name in later.members[0].node_name)
    await world.wait(5 * MINUTE)  # of a new epoch, silence is not counted

    silent.is_up = False
    await world.wait(MINUTE)
    pool = await figured(world)

    assert [(one.name, one.domain, one.intent) for one in pool.silent] == [(silent.name, "fabric-a.1", "schedulable")]
    assert pool.nodes["schedulable", False] == 1
    assert pool.at_risk == 1


async def test_a_member_that_is_not_bound_is_late_once_the_pools_patience_is_over(world: World) -> None:
    (agent,) = await world.join_all("n1")
    agent.confirms = False
    await world.reserve(asks(duration="3h"))
    await world.settle()
    before = await figured(world)
    world.clock.ms += 2 * MINUTE  # nobody looks meanwhile: a pass would replace the member

    assert (before.binding_late, (await figured(world)).binding_late) == (0, 1)


async def test_silent_nodes_are_named_up_to_a_bound(world: World) -> None:
    await world.join_all(" ".join(f"n{number:03}" for number in range(SILENT_MAX + 5)), gpus=1)
    world.clock.ms += HOUR

    pool = await figured(world)

    assert len(pool.silent) == SILENT_MAX
    assert pool.nodes["schedulable", False] == SILENT_MAX + 5


async def test_each_event_is_counted_once_however_often_somebody_looks(world: World) -> None:
    tally = Tally()
    seen: list[dict[str, int]] = []
    for name in ("n1", "n2"):
        await world.join(name)
        await published(world)
        seen += [dict((await figured(world, tally)).events) for _ in range(2)]

    assert [one["node.joined"] for one in seen] == [1, 1, 2, 2]


async def test_a_tally_that_meets_an_older_copy_of_its_database_counts_again(world: World) -> None:
    tally = Tally()
    await published(world)
    older = await world.coordinator.database.read(tally.counted)
    await world.join("n1")
    await published(world)
    newer = await world.coordinator.database.read(tally.counted)

    def restored(connection: Connection) -> Mapping[tuple[str | None, str], int]:
        with connection.begin_nested() as savepoint:
            connection.execute(delete(EVENT).where(EVENT.c.seq > sum(older.values())))
            found = tally.counted(connection)
            savepoint.rollback()
        return found

    assert newer != older
    assert await world.coordinator.database.write(restored) == older


async def published(world: World) -> None:
    """Number every event."""
    await world.coordinator.database.write(lambda connection: relay.publish(connection, 100))


async def test_a_node_that_somebody_mends_is_silent_in_maintenance(world: World) -> None:
    (agent,) = await world.join_all("n1")
    await declare(world, "n1")
    await world.wait(2 * HOUR)  # into the window, and out of the first minutes of an epoch

    agent.is_up = False
    await world.wait(MINUTE)

    assert [one.intent for one in (await figured(world)).silent] == ["maintenance"]
