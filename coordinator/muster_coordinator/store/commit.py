"""Every change of a reservation: all members or none, one event for each, in the caller's transaction.

Whoever calls has locked the pool's row first, then the reservation's; node rows are locked here, in the order of their
ids. Exclusion constraints deadlock without that order.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, RowMapping, String, bindparam, insert, select, update
from sqlalchemy.exc import DBAPIError

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.model import Move, moved
from muster_coordinator.core.model import BindState, Reservation
from muster_coordinator.core.placement.filters import group_value
from muster_coordinator.core.placement.pipeline import Placed
from muster_coordinator.core.snapshot import NodeView, Snapshot
from muster_coordinator.store.channels import give_channels
from muster_coordinator.store.documents import written_agreed
from muster_coordinator.store.engine import is_overlap
from muster_coordinator.store.outbox import Numbered, queue
from muster_coordinator.store.read import PoolRow, nodes, silent_since
from muster_coordinator.store.tables import ALLOCATION, BOOKING, CLUSTER, EVENT, NODE, POOL, RESERVATION
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
    raised = update(RESERVATION).where(RESERVATION.c.id == reservation.id)
    version = connection.execute(
        raised.values(version=RESERVATION.c.version + 1, **changes).returning(RESERVATION.c.version)
    ).scalar_one()
    emit(connection, at, fact, subject=reservation.id, version=version, pool_id=reservation.pool_id)


def record_node(connection: Connection, at: Moment, node_id: str, pool_id: str, fact: Fact, **changes: object) -> None:
    """Write one change of a node and its event."""
    raised = update(NODE).where(NODE.c.id == node_id).values(version=NODE.c.version + 1, **changes)
    version = connection.execute(raised.returning(NODE.c.version)).scalar_one()
    emit(connection, at, fact, subject=node_id, version=version, pool_id=pool_id)


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
_NEW_ALLOCATION: Final = insert(ALLOCATION)
_NEW_BOOKING: Final = insert(BOOKING)
_NUMBERED: Final = (
    update(EVENT)
    .where(EVENT.c.number == bindparam("of_event", type_=BigInteger))
    .values(seq=bindparam("place", type_=BigInteger))
)
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
    told = update(ALLOCATION).where(ALLOCATION.c.id.in_(allocation_ids))
    connection.execute(told.values(bind_state=BindState.BINDING, ordered_ms=at.ms, bind_reason=None))
    nodes = select(ALLOCATION.c.node_id).where(ALLOCATION.c.id.in_(allocation_ids))
    raise_revs(connection, connection.execute(nodes).scalars().all())


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
    rows = connection.execute(select(ALLOCATION).where(ALLOCATION.c.id.in_(allocation_ids))).mappings().all()
    revs = raise_revs(connection, [row["node_id"] for row in rows if row["bind_state"] != BindState.RESERVED])
    for row in rows:
        connection.execute(
            update(ALLOCATION)
            .where(ALLOCATION.c.id == row["id"])
            .values(**_dropped(row, revs, at), live=not leave_gang)
        )
    if leave_gang:
        _unbook(connection, allocation_ids)
    pool_changed(connection, pool_id, [row["node_id"] for row in rows])


def _dropped(row: RowMapping, revs: Mapping[str, int], at: Moment) -> dict[str, Any]:
    dropped = {"dropped_ms": at.ms, "dropped_rev": revs.get(row["node_id"])}
    match BindState(row["bind_state"]):
        case BindState.BINDING | BindState.BOUND:
            return {**dropped, "bind_state": BindState.UNBINDING}
        case BindState.RESERVED:
            return {**dropped, "bind_state": BindState.RELEASED}
        case _:
            return {}


def _unbook(connection: Connection, allocation_ids: Collection[str]) -> None:
    # The rows stay as history.
    connection.execute(update(BOOKING).where(BOOKING.c.allocation_id.in_(allocation_ids)).values(live=False))


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
        raised = update(NODE).where(NODE.c.id == node_id).values(rev=NODE.c.rev + 1).returning(NODE.c.rev)
        revs[node_id] = connection.execute(raised).scalar_one()
    return revs


def publish(connection: Connection, batch: int) -> int:
    """Give the next sequence numbers to committed events that have none, and queue them for receivers; return how many.

    Rows are marked, never walked by id: they may commit out of the order of their numbers. The cluster's row is the
    relays' lock, so that replicas take turns.
    """
    connection.execute(select(CLUSTER.c.id).with_for_update()).all()
    columns = (EVENT.c.number, EVENT.c.type, EVENT.c.subject, EVENT.c.at_ms)
    waiting = select(*columns).where(EVENT.c.seq.is_(None)).order_by(EVENT.c.number).limit(batch)
    rows = connection.execute(waiting).all()
    if not rows:
        return 0
    last = connection.execute(select(EVENT.c.seq).where(EVENT.c.seq.is_not(None)).order_by(EVENT.c.seq.desc()).limit(1))
    seq = last.scalar() or 0
    places = [{"of_event": row.number, "place": place} for place, row in enumerate(rows, seq + 1)]
    connection.execute(_NUMBERED, places)
    queue(connection, [Numbered(place, row.type, row.subject, row.at_ms) for place, row in enumerate(rows, seq + 1)])
    return len(rows)
