"""Bookings and allocations that nobody answers for: found, told, and freed.

Every change of ours leaves none: these are what a restored backup, or a hand in the database, leaves behind.
"""

from sqlalchemy import Connection, RowMapping, or_, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState, State
from muster_coordinator.store import commit
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import ALLOCATION, BOOKING, NODE, RESERVATION

_WITHOUT_MEMBERS = (State.PENDING, State.ENDED)


def orphans(connection: Connection, pool_row: PoolRow) -> list[RowMapping]:
    """Return allocations that are, or are booked, for a reservation which has no members."""
    booked = select(BOOKING.c.allocation_id).where(BOOKING.c.live)
    wanted = (
        select(ALLOCATION.c.id, ALLOCATION.c.reservation_id, ALLOCATION.c.node_id, ALLOCATION.c.bind_state)
        .join(RESERVATION, RESERVATION.c.id == ALLOCATION.c.reservation_id)
        .join(NODE, NODE.c.id == ALLOCATION.c.node_id)
        .where(
            NODE.c.pool_id == pool_row.id,
            or_(
                ALLOCATION.c.live & RESERVATION.c.state.in_(_WITHOUT_MEMBERS),
                ~ALLOCATION.c.live & ALLOCATION.c.id.in_(booked),
                ~ALLOCATION.c.live & ALLOCATION.c.bind_state.in_((BindState.BINDING, BindState.BOUND)),
            ),
        )
        .order_by(ALLOCATION.c.id)
    )
    return list(connection.execute(wanted).mappings())


def free_orphans(connection: Connection, at: Moment, pool_row: PoolRow) -> bool:
    """Drop each orphan like any member that leaves: its atoms are free once its node has let go.

    Returns:
        Whether there was any. Cost: in all allocations that ever were.
    """
    found = orphans(connection, pool_row)
    for row in found:
        commit.drop(connection, at, pool_row.id, [row["id"]], leave_gang=True)
        data = {"allocationId": row["id"], "reservationId": row["reservation_id"], "bindState": row["bind_state"]}
        commit.record_node(connection, at, row["node_id"], pool_row.id, Fact("node.orphan_freed", data))
    return bool(found)
