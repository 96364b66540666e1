"""Maintenance windows: declared at once, booked as soon as nobody is in the way, and over by themselves.

A declared node takes no new booking that runs into the window, whether its own booking could be made or not. Whoever
is in the way is moved where something else fits, and stays where nothing does; what is active is never thrown out.
"""

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, RowMapping, exists, insert, or_, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState, State
from muster_coordinator.service.access.guard import Guard, watched
from muster_coordinator.service.advance import advance
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.maintenance.bodies import MaintenanceRequest
from muster_coordinator.service.maintenance.draft import MaintenanceDraft, drafted
from muster_coordinator.store import commit, maintenance, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.tables import ALLOCATION, ATOM, BOOKING, MAINTENANCE, MAINTENANCE_NODE, RESERVATION
from muster_shared.errors import Code, Problem
from muster_shared.time import Window, format_instant

_AHEAD: Final = ("declared", "blocked", "booked")
"""States before the window has begun."""


def create(
    connection: Connection, at: Moment, request: MaintenanceRequest, index: PoolIndex, guard: Guard | None = None
) -> str:
    """Declare a maintenance window, move whom that is possible for, and book what is free; return its id.

    A flow: should the process die between its transactions, the background pass does the rest.

    Args:
        connection: Outside any transaction.
        at: Now; relative instants count from it.
        request: As the operator wrote it.
        index: The pools in memory, for the moves.
        guard: Of whoever asks, for the audit log.

    Raises:
        Problem: `NOT_FOUND` for a node or pool; `INVALID_INPUT` for a window or choice of nodes that cannot be;
            `CONFLICT` with its id where a node is in other maintenance for a part of the window. Nothing was stored.
    """
    with connection.begin(), watched(connection, guard):
        draft = drafted(connection, at, request)
        maintenance_id = at.new_id("mnt")
        _insert(connection, at, maintenance_id, draft)
        touched = look_again(connection, at, draft.node_ids, draft.window)
    for reservation_id in touched:
        with connection.begin():
            advance(connection, at, reservation_id, index)
    with connection.begin():
        settle(connection, at, maintenance_id)
    return maintenance_id


def _insert(connection: Connection, at: Moment, maintenance_id: str, draft: MaintenanceDraft) -> None:
    window = {"start_ms": draft.window.start_ms, "end_ms": draft.window.end_ms}
    columns = {"id": maintenance_id, "pool_id": draft.pool_row.id, "reason": draft.reason, "state": "declared"}
    connection.execute(insert(MAINTENANCE).values(**columns, **window, version=1, created_ms=at.ms))
    rows = [{"maintenance_id": maintenance_id, "node_id": one, "booked": False} for one in draft.node_ids]
    connection.execute(insert(MAINTENANCE_NODE), rows)
    data = {"nodeIds": draft.node_ids, "reason": draft.reason, "start": window["start_ms"], "end": window["end_ms"]}
    fact = Fact("maintenance.created", data)
    commit.emit(connection, at, fact, subject=maintenance_id, version=1, pool_id=draft.pool_row.id)
    commit.pool_changed(connection, draft.pool_row.id, draft.node_ids, frees=False)


def look_again(connection: Connection, at: Moment, node_ids: Collection[str], window: Window) -> tuple[str, ...]:
    """Make every placed booking that overlaps a window on these nodes due for a check; return them, soonest first."""
    in_window = BOOKING.c.start_ms < window.end_ms, BOOKING.c.end_ms > window.start_ms
    booked = select(BOOKING.c.reservation_id).where(BOOKING.c.node_id.in_(node_ids), BOOKING.c.live, *in_window)
    concerned = RESERVATION.c.id.in_(booked), RESERVATION.c.state == State.PLACED
    due = update(RESERVATION).where(*concerned).values(check_due_ms=at.ms).returning(RESERVATION.c.id)
    return read.soonest_first(connection, connection.execute(due).scalars().all())


def settle(connection: Connection, at: Moment, maintenance_id: str) -> tuple[str, ...]:
    """Do what a maintenance window needs now, whatever was missed: book, begin, end.

    Args:
        connection: In a transaction.
        at: Now.
        maintenance_id: Of any state; one that is over is left alone.

    Returns:
        Reservations that somebody must look at now.
    """
    row = _locked(connection, maintenance_id)
    if row["ended_ms"] is not None:
        return ()
    if at.ms >= row["end_ms"]:
        return _over(connection, at, row, "ended", "the window is over")
    facts = _booked_by_now(connection, at, row)
    state = row["state"]
    if facts and state in _AHEAD:
        state = facts[-1].type.rpartition(".")[2]
    if at.ms >= row["start_ms"] and state in _AHEAD:
        facts.append(_began(connection, row))
        state = "begun"
    _record(connection, at, row, facts, state=state)
    return ()


def _booked_by_now(connection: Connection, at: Moment, row: RowMapping) -> list[Fact]:
    """Book the nodes whose way is free; tell when it is the last of them, or for the first time that some are not."""
    window = Window(row["start_ms"], row["end_ms"])
    wanted = _nodes(connection, row["id"], booked=False)
    open_ids = sorted(wanted - maintenance.nodes_without_atoms(connection, wanted))
    blocked = maintenance.in_the_way(connection, window, open_ids, at.ms)
    fresh = [
        one for one in open_ids if one not in blocked and maintenance.book_node(connection, row["id"], one, window)
    ]
    if fresh:
        commit.pool_changed(connection, row["pool_id"], fresh, frees=False)
    left = [one for one in open_ids if one not in fresh]
    if not left and row["state"] != "booked" and (fresh or row["state"] == "declared"):
        return [Fact("maintenance.booked", {"nodeIds": sorted(_nodes(connection, row["id"], booked=True))})]
    if left and row["state"] == "declared":
        return [Fact("maintenance.blocked", {"nodeIds": left, "by": {one: blocked.get(one, []) for one in left}})]
    return []


def _began(connection: Connection, row: RowMapping) -> Fact:
    free, left = (sorted(_nodes(connection, row["id"], booked=booked)) for booked in (True, False))
    return Fact("maintenance.began", {"nodeIds": free, "blocked": left, "end": row["end_ms"]})


def cancel(connection: Connection, at: Moment, maintenance_id: str) -> tuple[str, ...]:
    """Take back a window that has not begun; return the reservations to look at. Again changes nothing.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` once it has begun.
    """
    row = _locked(connection, maintenance_id)
    if row["state"] == "cancelled":
        return ()
    if row["ended_ms"] is not None:
        raise Problem(Code.CONFLICT, f"{maintenance_id} has ended already")
    if at.ms >= row["start_ms"]:
        raise Problem(
            Code.CONFLICT,
            f"{maintenance_id} began at {format_instant(row['start_ms'])}: `muster maintenance end {maintenance_id}` "
            "gives its nodes back now",
        )
    return _over(connection, at, row, "cancelled", "cancelled")


def end(connection: Connection, at: Moment, maintenance_id: str) -> tuple[str, ...]:
    """Give the nodes back before the window is over; return the reservations to look at. Again changes nothing.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` before it has begun, or when it was cancelled.
    """
    row = _locked(connection, maintenance_id)
    if row["state"] == "ended":
        return ()
    if row["state"] == "cancelled":
        raise Problem(Code.CONFLICT, f"{maintenance_id} was cancelled")
    if at.ms < row["start_ms"]:
        raise Problem(
            Code.CONFLICT,
            f"{maintenance_id} begins at {format_instant(row['start_ms'])}: `muster maintenance cancel "
            f"{maintenance_id}` takes it back",
        )
    return _over(connection, at, row, "ended", "ended early")


def _over(connection: Connection, at: Moment, row: RowMapping, state: str, reason: str) -> tuple[str, ...]:
    node_ids = sorted(_nodes(connection, row["id"]))
    facts = [_began(connection, row)] if state == "ended" and row["state"] in _AHEAD else []
    maintenance.unbook(connection, row["id"])
    facts.append(Fact(f"maintenance.{state}", {"nodeIds": node_ids, "reason": reason}))
    _record(connection, at, row, facts, state=state, ended_ms=at.ms)
    commit.pool_changed(connection, row["pool_id"], node_ids)
    return look_again(connection, at, node_ids, Window(row["start_ms"], row["end_ms"]))


def due(connection: Connection, at: Moment, pool_id: str) -> list[str]:
    """Return the windows that need something now, found by reading alone, in the order of their starts."""
    mine = MAINTENANCE_NODE.c.maintenance_id == MAINTENANCE.c.id
    node_id = MAINTENANCE_NODE.c.node_id
    overlapping = BOOKING.c.start_ms < MAINTENANCE.c.end_ms, BOOKING.c.end_ms > MAINTENANCE.c.start_ms
    is_unbound = or_(
        MAINTENANCE.c.start_ms > at.ms,
        ~exists().where(ALLOCATION.c.node_id == node_id, ALLOCATION.c.bind_state == BindState.UNBINDING),
    )
    is_free = ~exists().where(BOOKING.c.node_id == node_id, BOOKING.c.live, *overlapping), is_unbound
    has_atoms = exists().where(ATOM.c.node_id == node_id)
    wanted = select(MAINTENANCE.c.id).where(
        MAINTENANCE.c.pool_id == pool_id,
        MAINTENANCE.c.ended_ms.is_(None),
        or_(
            MAINTENANCE.c.state == "declared",
            MAINTENANCE.c.end_ms <= at.ms,
            MAINTENANCE.c.state.in_(_AHEAD) & (MAINTENANCE.c.start_ms <= at.ms),
            exists().where(mine, ~MAINTENANCE_NODE.c.booked, has_atoms, *is_free),
        ),
    )
    return list(connection.execute(wanted.order_by(MAINTENANCE.c.start_ms, MAINTENANCE.c.id)).scalars())


def _record(connection: Connection, at: Moment, row: RowMapping, facts: Collection[Fact], **changes: object) -> None:
    if facts:
        mine = update(MAINTENANCE).where(MAINTENANCE.c.id == row["id"])
        connection.execute(mine.values(version=row["version"] + len(facts), **changes))
        version = row["version"] + 1
        commit.emit_all(connection, at, facts, subject=row["id"], version=version, pool_id=row["pool_id"])


def _nodes(connection: Connection, maintenance_id: str, *, booked: bool | None = None) -> frozenset[str]:
    wanted = select(MAINTENANCE_NODE.c.node_id).where(MAINTENANCE_NODE.c.maintenance_id == maintenance_id)
    if booked is not None:
        wanted = wanted.where(MAINTENANCE_NODE.c.booked == booked)
    return frozenset(connection.execute(wanted).scalars())


def _locked(connection: Connection, maintenance_id: str) -> RowMapping:
    wanted = select(MAINTENANCE).where(MAINTENANCE.c.id == maintenance_id)
    row = connection.execute(wanted).mappings().first()
    if row is None:
        raise Problem(Code.NOT_FOUND, f"there is no maintenance {maintenance_id!r}; `muster maintenance` lists it")
    read.known_pool(connection, row["pool_id"], lock=True)
    return connection.execute(wanted.with_for_update()).mappings().one()
