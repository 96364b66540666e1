"""Every change of a reservation: all members or none, one event for each, in the caller's transaction.

Whoever calls has locked the pool's row first, then the reservation's; node rows are locked here, in the order of their
ids. Exclusion constraints deadlock without that order.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, Integer, RowMapping, String, Table, bindparam, insert, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.dml import ReturningUpdate

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.model import Move, moved
from muster_coordinator.core.model import BindState, Reservation
from muster_coordinator.core.placement.filters import group_value
from muster_coordinator.core.placement.pipeline import Placed
from muster_coordinator.core.snapshot import NodeView, Snapshot
from muster_coordinator.store.channels import give_channels
from muster_coordinator.store.documents import written_agreed
from muster_coordinator.store.engine import is_overlap
from muster_coordinator.store.read import PoolRow, nodes, silent_since
from muster_coordinator.store.tables import ALLOCATION, BOOKING, EVENT, NODE, POOL, RESERVATION
from muster_shared.codec import dumps
from muster_shared.devices import mask_words
from muster_shared.time import Window

JOURNAL: Final = "muster_journal"
"""The execution option of a connection under which somebody keeps a `Journal` of its transaction."""

Journal = dict[str, tuple[int, int]]
"""What a transaction has changed: the version before and after, by the id of what was changed; 0 before it was made."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Somebody else was faster: nothing was written, and these nodes refused."""

    node_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fact:
    """An event to be written with a change: its type and what it says."""

    type: str
    data: Mapping[str, Any]


def record(
    connection: Connection,
    at: Moment,
    reservation: Reservation,
    fact: Fact,
    move: Move | None = None,
    **changes: object,
) -> None:
    """Write one change of a reservation, its event, and the state that the move leads to.

    Args:
        connection: In a transaction that holds the reservation's row.
        at: The instant of the event.
        reservation: As it was read in this transaction.
        fact: What happened.
        move: The state's move; None where the state stays and no member changes.
        **changes: Columns of the reservation and their new values.

    Raises:
        IllegalMoveError: The state has no such move.
    """
    if move is not None:
        changes["state"] = moved(reservation.state, move)
    version = _changed(connection, RESERVATION, reservation.id, changes)
    emit(connection, at, fact, subject=reservation.id, version=version, pool_id=reservation.pool_id)


def record_node(connection: Connection, at: Moment, node_id: str, pool_id: str, fact: Fact, **changes: object) -> None:
    """Write one change of a node and its event."""
    record_node_all(connection, at, node_id, pool_id, [fact], **changes)


def record_node_all(
    connection: Connection, at: Moment, node_id: str, pool_id: str, facts: Sequence[Fact], **changes: object
) -> None:
    """Write changes of a node that became true together, at least one, and an event for each."""
    version = _changed(connection, NODE, node_id, changes, len(facts)) - len(facts) + 1
    emit_all(connection, at, facts, subject=node_id, version=version, pool_id=pool_id)


def _changed(connection: Connection, table: Table, subject: str, changes: Mapping[str, object], events: int = 1) -> int:
    """Write columns of a reservation or a node, and return the version that it has after so many events."""
    values = {f"new_{name}": value for name, value in changes.items()}
    statement = _raising(table, tuple(sorted(changes)))
    return int(connection.execute(statement, {"subject": subject, "events": events, **values}).scalar_one())


@cache
def _raising(table: Table, names: tuple[str, ...]) -> ReturningUpdate[Any]:
    """Build the statement once for each choice of columns: building costs more than running it."""
    columns = {name: bindparam(f"new_{name}", type_=table.c[name].type) for name in names}
    raised = update(table).where(table.c.id == bindparam("subject", type_=String))
    return raised.values(version=table.c.version + bindparam("events", type_=Integer), **columns).returning(
        table.c.version
    )


def emit(connection: Connection, at: Moment, fact: Fact, *, subject: str, version: int, pool_id: str | None) -> None:
    """Write one event. Its place in the stream is given by the relay, once it is committed."""
    emit_all(connection, at, [fact], subject=subject, version=version, pool_id=pool_id)


def emit_all(
    connection: Connection, at: Moment, facts: Iterable[Fact], *, subject: str, version: int, pool_id: str | None
) -> None:
    """Write the events of one subject that became true together; the first one has this version."""
    write_events(connection, event_rows(at, facts, subject=subject, version=version, pool_id=pool_id))


def event_rows(
    at: Moment, facts: Iterable[Fact], *, subject: str, version: int, pool_id: str | None
) -> list[dict[str, Any]]:
    """Return events as rows, for whoever writes those of many subjects at once."""
    return [
        {
            "id": at.new_id("evt"),
            "type": fact.type,
            "at_ms": at.ms,
            "pool_id": pool_id,
            "subject": subject,
            "version": version + number,
            "data": dumps(dict(fact.data)).decode(),
        }
        for number, fact in enumerate(facts)
    ]


def write_events(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Write rows of `event_rows`, and note in the connection's journal, where it keeps one, what has changed."""
    connection.execute(_NEW_EVENT, rows)
    journal: Journal | None = connection.get_execution_options().get(JOURNAL)
    if journal is not None:
        for row in rows:
            former, _ = journal.get(row["subject"], (row["version"] - 1, 0))
            journal[row["subject"]] = (former, row["version"])


# Built once: every placement runs them, and building a statement costs more than running it.
_RAISED: Final = (
    update(POOL)
    .where(POOL.c.id == bindparam("of_pool", type_=String))
    .values(version=POOL.c.version + 1)
    .returning(POOL.c.version)
)
_FREED: Final = _RAISED.values(freed_version=POOL.c.version + 1)
_THESE_NODES: Final = NODE.c.id.in_(bindparam("node_ids", type_=String, expanding=True))
_CHANGED: Final = update(NODE).where(_THESE_NODES).values(changed_version=bindparam("now_version", type_=BigInteger))
_NODES_LOCKED: Final = (
    select(NODE.c.id, NODE.c.changed_version, NODE.c.last_report_ms)
    .where(_THESE_NODES)
    .order_by(NODE.c.id)
    .with_for_update(key_share=True)
)
_REV_RAISED: Final = (
    update(NODE).where(NODE.c.id == bindparam("node_id", type_=String)).values(rev=NODE.c.rev + 1).returning(NODE.c.rev)
)
_THESE_ALLOCATIONS: Final = bindparam("allocation_ids", type_=String, expanding=True)
_ALLOCATIONS: Final = select(ALLOCATION).where(ALLOCATION.c.id.in_(_THESE_ALLOCATIONS))
_ORDERED: Final = (
    update(ALLOCATION)
    .where(ALLOCATION.c.id.in_(_THESE_ALLOCATIONS))
    .values(bind_state=BindState.BINDING, ordered_ms=bindparam("now_ms", type_=BigInteger), bind_reason=None)
    .returning(ALLOCATION.c.node_id)
)
_DROPPED: Final = (
    update(ALLOCATION)
    .where(ALLOCATION.c.id == bindparam("allocation_id", type_=String))
    .values(
        {
            name: bindparam(f"new_{name}", type_=ALLOCATION.c[name].type)
            for name in ("bind_state", "dropped_ms", "dropped_rev", "live")
        }
    )
)
_UNBOOKED: Final = update(BOOKING).where(BOOKING.c.allocation_id.in_(_THESE_ALLOCATIONS)).values(live=False)
_NEW_ALLOCATION: Final = insert(ALLOCATION)
_NEW_BOOKING: Final = insert(BOOKING)
_NEW_EVENT: Final = insert(EVENT)


def pool_changed(connection: Connection, pool_id: str, node_ids: Iterable[str], *, frees: bool = True) -> None:
    """Raise the pool's version, and say which nodes differ: whoever planned on the former one looks at them again.

    With `frees`, pending work is tried again: what has changed is more than that something was booked.
    """
    version = connection.execute(_FREED if frees else _RAISED, {"of_pool": pool_id}).scalar_one()
    connection.execute(_CHANGED, {"node_ids": sorted(set(node_ids)), "now_version": version})


def book(
    connection: Connection,
    at: Moment,
    pool_row: PoolRow,
    reservation: Reservation,
    members: Collection[Placed],
    window: Window,
    planned_version: int,
) -> Lost | None:
    """Book all members in one savepoint, or none, as the reservation's next generation.

    Args:
        connection: In a transaction that holds the pool's row.
        at: Now.
        pool_row: The pool, for its turnaround and its clock of silence.
        reservation: Whose members they become; its own bookings do not stand in the way.
        members: Nodes and atoms that a plan chose.
        window: What is booked, without the turnaround.
        planned_version: Of the pool that the plan was made on.

    Returns:
        None when booked, else every node that refused: unsound, gone, or taken by now.
    """
    lost = refusing(connection, at, pool_row, reservation, members, window, planned_version)
    if lost is not None:
        return lost
    with connection.begin_nested() as savepoint:
        lost = entered(connection, at, pool_row, [Entry(reservation, members, window)])
        if lost is not None:
            savepoint.rollback()
    return lost


@dataclass(frozen=True, slots=True)
class Entry:
    """A reservation and what it is about to book, without the turnaround."""

    reservation: Reservation
    members: Collection[Placed]
    window: Window


def entered(connection: Connection, at: Moment, pool_row: PoolRow, entries: Collection[Entry]) -> Lost | None:
    """Write members and their bookings; where the database refuses one, the caller undoes all of it."""
    allocations: list[dict[str, Any]] = []
    bookings: list[dict[str, Any]] = []
    for entry in entries:
        occupied = entry.window.occupied(pool_row.policy.turnaround_ms)
        own, booked = _rows(at, entry.reservation, entry.members, occupied)
        allocations += own
        bookings += booked
    node_ids = frozenset(member.node_id for entry in entries for member in entry.members)
    try:
        connection.execute(_NEW_ALLOCATION, allocations)
        connection.execute(_NEW_BOOKING, bookings)
    except DBAPIError as error:
        if not is_overlap(error):
            raise
        return Lost(node_ids)
    pool_changed(connection, pool_row.id, node_ids, frees=False)
    return None


def refusing(
    connection: Connection,
    at: Moment,
    pool_row: PoolRow,
    reservation: Reservation,
    members: Collection[Placed],
    window: Window,
    planned_version: int,
) -> Lost | None:
    """Lock the members' nodes in the order of their ids; return those that can no longer give what was planned.

    A node that has not changed since the plan's version of the pool, and is heard from, is as it was planned.
    Arguments as of `book`.
    """
    occupied = window.occupied(pool_row.policy.turnaround_ms)
    by_id = {member.node_id: member for member in members}
    rows = connection.execute(_NODES_LOCKED, {"node_ids": sorted(by_id)}).all()
    here = {row.id for row in rows if silent_since(row.last_report_ms, pool_row, at.ms) is None}
    moved = [row.id for row in rows if row.id in here and row.changed_version > planned_version]
    if moved:
        now = Snapshot.of(pool_row.id, pool_row.version, nodes(connection, pool_row, at.ms, moved, occupied))
        now = now.without(reservation.id, moved)
        here -= {node_id for node_id in moved if not _still_fits(now.views.get(node_id), by_id[node_id], occupied)}
    refused = frozenset(by_id) - here
    return Lost(refused) if refused else None


def _still_fits(view: NodeView | None, member: Placed, occupied: Window) -> bool:
    if view is None or view.node.intent != "schedulable" or not view.node.reachable or view.node.leased:
        return False
    if any(group_value(view, key) != value for key, value in member.agreed):
        return False
    return not member.mask & ~(view.free(occupied) & ~view.held_mask)


def _rows(
    at: Moment, reservation: Reservation, members: Iterable[Placed], occupied: Window
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    allocations: list[dict[str, Any]] = []
    bookings: list[dict[str, Any]] = []
    for member in members:
        allocation_id = at.new_id("alloc")
        allocations.append(
            {
                "id": allocation_id,
                "reservation_id": reservation.id,
                "node_id": member.node_id,
                "generation": reservation.generation + 1,
                "live": True,
                "agreed": written_agreed(member.agreed),
                "bind_state": BindState.RESERVED,
                "guard_armed": False,
            }
        )
        bookings.extend(
            {
                "allocation_id": allocation_id,
                "word": word,
                "node_id": member.node_id,
                "reservation_id": reservation.id,
                "mask": bits,
                "start_ms": occupied.start_ms,
                "end_ms": occupied.end_ms,
                "live": True,
            }
            for word, bits in mask_words(member.mask).items()
        )
    return allocations, bookings


def order(connection: Connection, at: Moment, pool_row: PoolRow, allocation_ids: Collection[str]) -> None:
    """Put allocations into their nodes' desired state, each with the IMEX channel of its gang in its fabric."""
    if pool_row.policy.imex_channels:
        give_channels(connection, pool_row.policy.imex_channels, allocation_ids)
    told = connection.execute(_ORDERED, {"allocation_ids": list(allocation_ids), "now_ms": at.ms})
    raise_revs(connection, told.scalars().all())


def drop(
    connection: Connection, at: Moment, pool_id: str, allocation_ids: Collection[str], *, leave_gang: bool
) -> None:
    """Take allocations out of their nodes' desired state.

    What was never ordered is released at once; the rest is `unbinding` until its node confirms the revision.

    Args:
        connection: In a transaction that holds the pool's row and the reservation's.
        at: Now.
        pool_id: Of the reservation.
        allocation_ids: Live members of one reservation.
        leave_gang: They stop being members; else they stay members of an ending gang, their bookings with them.
    """
    rows = connection.execute(_ALLOCATIONS, {"allocation_ids": list(allocation_ids)}).mappings().all()
    revs = raise_revs(connection, [row["node_id"] for row in rows if row["bind_state"] != BindState.RESERVED])
    for row in rows:
        connection.execute(
            _DROPPED, {"allocation_id": row["id"], **_dropped(row, revs, at), "new_live": not leave_gang}
        )
    if leave_gang:
        _unbook(connection, allocation_ids)
    pool_changed(connection, pool_id, [row["node_id"] for row in rows])


def _dropped(row: RowMapping, revs: Mapping[str, int], at: Moment) -> dict[str, Any]:
    dropped = {"new_dropped_ms": at.ms, "new_dropped_rev": revs.get(row["node_id"])}
    match BindState(row["bind_state"]):
        case BindState.BINDING | BindState.BOUND:
            return {**dropped, "new_bind_state": BindState.UNBINDING}
        case BindState.RESERVED:
            return {**dropped, "new_bind_state": BindState.RELEASED}
        case _:
            return {f"new_{name}": row[name] for name in ("bind_state", "dropped_ms", "dropped_rev")}


def _unbook(connection: Connection, allocation_ids: Collection[str]) -> None:
    # The rows stay as history.
    connection.execute(_UNBOOKED, {"allocation_ids": list(allocation_ids)})


def leave(connection: Connection, reservation: Reservation) -> None:
    """Take every member out of the gang and end its bookings: nothing of it is exposed any more."""
    mine = ALLOCATION.c.reservation_id == reservation.id
    _unbook(connection, connection.execute(select(ALLOCATION.c.id).where(mine, ALLOCATION.c.live)).scalars().all())
    connection.execute(update(ALLOCATION).where(mine).values(live=False))
    pool_changed(connection, reservation.pool_id, [member.node_id for member in reservation.members])


def raise_revs(connection: Connection, node_ids: Iterable[str]) -> dict[str, int]:
    """Say that the desired state of these nodes has changed; return their new revisions."""
    revs: dict[str, int] = {}
    for node_id in sorted(set(node_ids)):  # one lock order for everybody
        revs[node_id] = connection.execute(_REV_RAISED, {"node_id": node_id}).scalar_one()
    return revs
