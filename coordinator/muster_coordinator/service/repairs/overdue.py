"""Releases that are not confirmed in time: told once, shown until they are, and never waited for by anybody else."""

from typing import Final

from sqlalchemy import Connection, RowMapping, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import ALLOCATION, NODE

_NEXT_SILENT: Final = "power the host off, then `muster nodes fence {name}`: its GPUs stay blocked until then"
_NEXT_HEARD: Final = (
    "something on the host keeps the GPUs: look at its agent's log; if it cannot be ended, power the host off, "
    "then `muster nodes fence {name}`"
)


def late_releases(connection: Connection, at: Moment, pool_row: PoolRow) -> list[RowMapping]:
    """Return allocations whose release was due by now and was not told to be late."""
    wanted = (
        select(ALLOCATION.c.id, ALLOCATION.c.reservation_id, ALLOCATION.c.node_id, ALLOCATION.c.dropped_ms)
        .add_columns(NODE.c.name, NODE.c.last_report_ms)
        .join(NODE, NODE.c.id == ALLOCATION.c.node_id)
        .where(NODE.c.pool_id == pool_row.id, ALLOCATION.c.bind_state == BindState.UNBINDING, ~ALLOCATION.c.overdue)
        .where(ALLOCATION.c.dropped_ms <= at.ms - pool_row.policy.unbind_timeout_ms)
        .order_by(ALLOCATION.c.node_id, ALLOCATION.c.id)
    )
    return list(connection.execute(wanted).mappings())


def tell_late_releases(connection: Connection, at: Moment, pool_row: PoolRow) -> None:
    """Write one event for each late release, with what an operator does about it."""
    for row in late_releases(connection, at, pool_row):
        is_silent = read.silent_since(row["last_report_ms"], pool_row, at.ms) is not None
        data = {
            "allocationId": row["id"],
            "reservationId": row["reservation_id"],
            "since": row["dropped_ms"],
            "next": (_NEXT_SILENT if is_silent else _NEXT_HEARD).format(name=row["name"]),
        }
        connection.execute(update(ALLOCATION).where(ALLOCATION.c.id == row["id"]).values(overdue=True))
        commit.record_node(connection, at, row["node_id"], pool_row.id, Fact("node.release_overdue", data))
