"""What a coordinator keeps of the pools in memory is what the database holds, whatever has happened meanwhile."""

from sqlalchemy import Connection, update

from muster_coordinator.core.model import Node
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.nodes import remove
from muster_coordinator.store import read
from muster_coordinator.store.tables import NODE, POOL
from tests.support.service_world import HOUR, MINUTE, World, asks


class Replica:
    """An index that looks only when it is told, beside the database."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._index = PoolIndex()

    async def look(self) -> tuple[list[Node], list[Node]]:
        """Return the nodes as the index knows them, and as they are stored."""

        def both(connection: Connection) -> tuple[list[Node], list[Node]]:
            (pool_row,) = read.pools(connection)
            at = self._world.clock.moment()
            known = self._index.snapshot(connection, pool_row, at)
            stored = read.snapshot(connection, pool_row, at.ms)
            return [view.node for view in known.ordered], [view.node for view in stored.ordered]

        return await self._world.coordinator.database.read(both)


async def test_silence_begins_and_ends_without_any_change_of_the_pool(world: World) -> None:
    node, _ = await world.join_all("a1 a2")
    replica = Replica(world)
    first, _ = await replica.look()
    world.clock.ms += HOUR
    for agent in world.agents.values():
        await agent.report()
    node.is_up = False
    world.clock.ms += MINUTE
    await world.agents["a2"].report()

    known, stored = await replica.look()
    node.is_up = True
    await node.report()
    again, stored_again = await replica.look()

    assert (known, again) == (stored, stored_again)
    assert [sum(not one.reachable for one in nodes) for nodes in (first, known, again)] == [0, 1, 0]


async def test_bookings_leave_it_when_their_end_has_passed(world: World) -> None:
    await world.join("a1")
    replica = Replica(world)
    for start in ("+1h", "+3h", "+5h"):
        await world.reserve(asks(start=start))
    counts: list[int] = []
    for _ in range(4):
        known, stored = await replica.look()
        assert known == stored
        counts.append(len(known[0].booked))
        world.clock.ms += 2 * HOUR

    assert counts == [3, 2, 1, 0]
    await world.settle()


async def test_an_overrun_that_becomes_too_long_has_no_date_any_more(world: World) -> None:
    node = await world.join("a1")
    running = await world.reserve(asks())
    await world.settle()
    node.lets_go = False
    await world.coordinator.release(running.id)
    replica = Replica(world)
    dated, _ = await replica.look()
    world.clock.ms += 4 * MINUTE

    undated, stored = await replica.look()
    node.lets_go = True
    await world.settle()
    over, stored_over = await replica.look()

    assert (undated, over) == (stored, stored_over)
    assert undated[0].booked[0].end_ms > dated[0].booked[0].end_ms
    assert over[0].booked == ()


async def test_a_database_that_was_restored_from_an_older_copy_is_read_anew(world: World) -> None:
    """Versions that come again say something else: nothing of what was known may be kept."""
    node, _ = await world.join_all("a1 a2")
    replica = Replica(world)
    await world.reserve(asks(start="+1h"))
    await world.label(node, rack="r1")
    await replica.look()

    def restore(connection: Connection) -> None:
        connection.execute(update(POOL).values(version=1))
        connection.execute(update(NODE).values(changed_version=1, operator_labels="{}"))

    await world.coordinator.database.write(restore)

    known, stored = await replica.look()
    assert known == stored
    assert all("rack" not in one.labels for one in known)


async def test_nodes_that_join_and_leave_are_followed(world: World) -> None:
    await world.join("a1")
    replica = Replica(world)
    await replica.look()
    wide = await world.join("b1", gpus=10)
    await replica.look()
    for number in range(10):
        wide.split(number)  # more atoms than the lanes that were known are wide
    await wide.report()
    joined, stored = await replica.look()
    wide.is_up = False
    world.clock.ms += HOUR
    await world.agents["a1"].report()
    await world.coordinator.write(remove.remove_node, "b1", None)
    left, stored_left = await replica.look()

    assert (joined, left) == (stored, stored_left)
    assert [sorted(len(one.atoms) for one in nodes) for nodes in (joined, left)] == [[8, 70], [8]]
