"""Draining nodes: empty once nothing is booked or held on them, which is told once."""

from sqlalchemy import Connection, RowMapping, exists, select

from muster_coordinator.clock import Moment
from muster_coordinator.store import commit
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import HELD_BY_NODE, PoolRow
from muster_coordinator.store.tables import ALLOCATION, NODE


def emptied(connection: Connection, pool_row: PoolRow) -> list[RowMapping]:
    """Return draining nodes that have neither a booking of anybody's nor anything bound, and were not told of."""
    in_use = exists().where(
        ALLOCATION.c.node_id == NODE.c.id, ALLOCATION.c.live | ALLOCATION.c.bind_state.in_(HELD_BY_NODE)
    )
    draining = (NODE.c.pool_id == pool_row.id) & (NODE.c.intent == "draining") & NODE.c.removed_ms.is_(None)
    wanted = select(NODE.c.id, NODE.c.name).where(draining, NODE.c.drained_ms.is_(None), ~in_use)
    return list(connection.execute(wanted.order_by(NODE.c.id)).mappings())


def tell_emptied(connection: Connection, at: Moment, pool_row: PoolRow) -> None:
    """Write one event for each node that has been emptied."""
    for row in emptied(connection, pool_row):
        data = {"next": f"nothing is booked on it: take it down, and `muster nodes uncordon {row['name']}` afterwards"}
        fact = Fact("node.drained", data)
        commit.record_node(connection, at, row["id"], pool_row.id, fact, drained_ms=at.ms)
