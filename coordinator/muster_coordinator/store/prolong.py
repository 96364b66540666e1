"""The end of a whole gang's bookings is moved at once, or not at all."""

from sqlalchemy import Connection, update
from sqlalchemy.exc import DBAPIError

from muster_coordinator.core.model import BindState, Reservation
from muster_coordinator.store import commit
from muster_coordinator.store.commit import Lost
from muster_coordinator.store.engine import is_overlap
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import BOOKING
from muster_shared.time import Window


def prolong(connection: Connection, pool_row: PoolRow, reservation: Reservation, end_ms: int) -> Lost | None:
    """Let every member's booking last until a later end, and tell the nodes that have bound it.

    Args:
        connection: In a transaction that holds the pool's row and the reservation's.
        pool_row: The pool, for its turnaround.
        reservation: With its live members.
        end_ms: The new end, without the turnaround.

    Returns:
        None when all are booked, else that somebody has an atom by then: nothing was written.
    """
    occupied = Window(reservation.start_ms, end_ms).occupied(pool_row.policy.turnaround_ms)
    ids = [member.allocation_id for member in reservation.members]
    later = update(BOOKING).where(BOOKING.c.allocation_id.in_(ids)).values(end_ms=occupied.end_ms)
    savepoint = connection.begin_nested()
    try:
        connection.execute(later)
    except DBAPIError as error:
        if not is_overlap(error):
            raise
        savepoint.rollback()
        return Lost(frozenset(member.node_id for member in reservation.members))
    savepoint.commit()
    told = (member.node_id for member in reservation.members if member.bind in {BindState.BINDING, BindState.BOUND})
    commit.raise_revs(connection, told)
    commit.pool_changed(connection, pool_row.id, [member.node_id for member in reservation.members], frees=False)
    return None
