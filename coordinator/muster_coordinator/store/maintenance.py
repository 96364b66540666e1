"""Maintenance windows in the calendar: which nodes they are declared on, and the bookings that keep others out."""

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import Connection, RowMapping, Select, insert, or_, select, update
from sqlalchemy.exc import DBAPIError

from muster_coordinator.core.model import BindState, Booked, MaintenanceWindow
from muster_coordinator.store.engine import is_overlap
from muster_coordinator.store.tables import ALLOCATION, ATOM, BOOKING, MAINTENANCE, MAINTENANCE_NODE
from muster_shared.devices import mask_words
from muster_shared.time import Window

_IS_OPEN = MAINTENANCE.c.ended_ms.is_(None)
_DECLARED = (
    select(MAINTENANCE.c.id, MAINTENANCE.c.start_ms, MAINTENANCE.c.end_ms, MAINTENANCE_NODE.c.node_id)
    .join(MAINTENANCE_NODE, MAINTENANCE_NODE.c.maintenance_id == MAINTENANCE.c.id)
    .where(_IS_OPEN)
    .order_by(MAINTENANCE.c.start_ms, MAINTENANCE.c.id)
)


def declared(
    connection: Connection, nodes: Select[tuple[str]] | Collection[str]
) -> defaultdict[str, tuple[MaintenanceWindow, ...]]:
    """Return the maintenance of some nodes that is not over, booked or only declared, by node, rising by start."""
    found: defaultdict[str, tuple[MaintenanceWindow, ...]] = defaultdict(tuple[MaintenanceWindow, ...])
    for row in connection.execute(_DECLARED.where(MAINTENANCE_NODE.c.node_id.in_(nodes))):
        found[row.node_id] += (MaintenanceWindow(row.id, Window(row.start_ms, row.end_ms)),)
    return found


def with_declared(
    booked: list[Booked], windows: tuple[MaintenanceWindow, ...], atoms: Collection[RowMapping], now_ms: int
) -> list[Booked]:
    """Return a node's bookings, with all of it booked for its maintenance, also where that could not be written yet."""
    if not windows or not atoms:
        return booked
    own = {one.id for one in windows}
    mask = sum(1 << atom["number"] for atom in atoms)
    ahead = [one for one in windows if one.window.end_ms > now_ms]
    return [
        *(one for one in booked if one.reservation_id not in own),
        *(Booked(one.window.start_ms, one.window.end_ms, mask, one.id) for one in ahead),
    ]


def in_the_way(connection: Connection, window: Window, node_ids: Collection[str], now_ms: int) -> dict[str, list[str]]:
    """Return, by node, the reservations that keep maintenance from booking it: sorted, none twice.

    Those are whose bookings overlap the window, and once it has begun, who has not confirmed to have let go.
    """
    booked = (
        select(BOOKING.c.node_id, BOOKING.c.reservation_id)
        .join(ALLOCATION, ALLOCATION.c.id == BOOKING.c.allocation_id)
        .where(
            BOOKING.c.node_id.in_(node_ids),
            or_(
                BOOKING.c.live & (BOOKING.c.start_ms < window.end_ms) & (BOOKING.c.end_ms > window.start_ms),
                (ALLOCATION.c.bind_state == BindState.UNBINDING) & (window.start_ms <= now_ms),
            ),
        )
    )
    found: defaultdict[str, set[str]] = defaultdict(set)
    for node_id, reservation_id in connection.execute(booked):
        found[node_id].add(reservation_id)
    return {node_id: sorted(ids) for node_id, ids in found.items()}


def book_node(connection: Connection, maintenance_id: str, node_id: str, window: Window) -> bool:
    """Book every atom of a node for its maintenance, if it has any and nobody else has booked one; return whether.

    In a transaction that holds the pool's row. Nothing is written where the database refuses.
    """
    mask = _atoms(connection, node_id)
    rows = [
        {
            "allocation_id": f"{maintenance_id}/{node_id}",
            "word": word,
            "node_id": node_id,
            "reservation_id": maintenance_id,
            "mask": bits,
            "start_ms": window.start_ms,
            "end_ms": window.end_ms,
            "live": True,
        }
        for word, bits in mask_words(mask).items()
    ]
    if not rows:
        return False
    savepoint = connection.begin_nested()
    try:
        connection.execute(insert(BOOKING), rows)
    except DBAPIError as error:
        if not is_overlap(error):
            raise
        savepoint.rollback()
        return False
    savepoint.commit()
    mine = MAINTENANCE_NODE.c.maintenance_id == maintenance_id, MAINTENANCE_NODE.c.node_id == node_id
    connection.execute(update(MAINTENANCE_NODE).where(*mine).values(booked=True))
    return True


def cover(connection: Connection, node_id: str) -> None:
    """Let maintenance that has booked a node book its newest atoms too: nobody else can have booked them."""
    booked = (
        select(MAINTENANCE.c.id, MAINTENANCE.c.start_ms, MAINTENANCE.c.end_ms)
        .join(MAINTENANCE_NODE, MAINTENANCE_NODE.c.maintenance_id == MAINTENANCE.c.id)
        .where(_IS_OPEN, MAINTENANCE_NODE.c.node_id == node_id, MAINTENANCE_NODE.c.booked)
    )
    for row in connection.execute(booked).all():
        holder = BOOKING.c.allocation_id == f"{row.id}/{node_id}"
        connection.execute(BOOKING.delete().where(holder))
        assert book_node(connection, row.id, node_id, Window(row.start_ms, row.end_ms)), "new atoms are nobody's"


def unbook(connection: Connection, maintenance_id: str) -> None:
    """Give every node back. The rows stay as history."""
    mine = BOOKING.c.reservation_id == maintenance_id
    connection.execute(update(BOOKING).where(mine).values(live=False))


def forget_node(connection: Connection, node_id: str) -> None:
    """Take a node that is gone out of every window that is not over."""
    ahead = select(MAINTENANCE.c.id).where(_IS_OPEN)
    mine = MAINTENANCE_NODE.c.node_id == node_id, MAINTENANCE_NODE.c.maintenance_id.in_(ahead)
    for maintenance_id in connection.execute(select(MAINTENANCE_NODE.c.maintenance_id).where(*mine)).scalars().all():
        holder = BOOKING.c.allocation_id == f"{maintenance_id}/{node_id}"
        connection.execute(update(BOOKING).where(holder).values(live=False))
    connection.execute(MAINTENANCE_NODE.delete().where(*mine))


def nodes_without_atoms(connection: Connection, node_ids: Collection[str]) -> frozenset[str]:
    """Return those nodes that have never reported a device: there is nothing to book on them."""
    having = select(ATOM.c.node_id).where(ATOM.c.node_id.in_(node_ids)).distinct()
    return frozenset(node_ids) - frozenset(connection.execute(having).scalars())


def _atoms(connection: Connection, node_id: str) -> int:
    numbers = connection.execute(select(ATOM.c.number).where(ATOM.c.node_id == node_id)).scalars()
    return sum(1 << number for number in numbers)
