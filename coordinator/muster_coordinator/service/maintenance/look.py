"""Maintenance windows as the API shows them, with who is in the way and where they could go. Reads only."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from sqlalchemy import Connection, RowMapping, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Booked, Reservation, State
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.repair.plan import Repaired, plan_repair
from muster_coordinator.core.repair.targets import untrusted
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.look import known_pool
from muster_coordinator.service.maintenance.bodies import (
    InTheWay,
    MaintenanceNodeView,
    MaintenanceRequest,
    MaintenanceView,
)
from muster_coordinator.service.maintenance.draft import drafted
from muster_coordinator.service.repairs import storm
from muster_coordinator.store import maintenance, read
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import MAINTENANCE, MAINTENANCE_NODE, NODE
from muster_shared.errors import Code, Problem
from muster_shared.time import Window, format_instant

_PLANNED_MAX: Final = 64  # moves that are foretold in one answer: each is a plan, some milliseconds in a large pool
_PREVIEWED: Final = "mnt_preview"  # whose bookings a preview adds to its own copy of the pool


def shown(connection: Connection, at: Moment, maintenance_id: str, index: PoolIndex) -> MaintenanceView:
    """Show one maintenance window.

    Raises:
        Problem: `NOT_FOUND`.
    """
    row = connection.execute(select(MAINTENANCE).where(MAINTENANCE.c.id == maintenance_id)).mappings().first()
    if row is None:
        raise Problem(Code.NOT_FOUND, f"there is no maintenance {maintenance_id!r}; `muster maintenance` lists it")
    return _view(connection, at, row, index)


def listed(
    connection: Connection,
    at: Moment,
    index: PoolIndex,
    *,
    pool_id: str | None = None,
    everything: bool = False,
    after: str | None = None,
    limit: int,
) -> list[MaintenanceView]:
    """List maintenance windows in the order in which they were made; without `everything`, those that are not over."""
    wanted = select(MAINTENANCE).order_by(MAINTENANCE.c.id).limit(limit)
    if pool_id is not None:
        wanted = wanted.where(MAINTENANCE.c.pool_id == known_pool(connection, pool_id).id)
    if not everything:
        wanted = wanted.where(MAINTENANCE.c.ended_ms.is_(None))
    if after is not None:
        wanted = wanted.where(MAINTENANCE.c.id > after)
    return [_view(connection, at, row, index) for row in connection.execute(wanted).mappings().all()]


def preview(connection: Connection, at: Moment, request: MaintenanceRequest, index: PoolIndex) -> MaintenanceView:
    """Answer what declaring this window now would do: who would be moved where, and who would stay. Nothing changes.

    Raises:
        Problem: As `service.maintenance.create` would.
    """
    draft = drafted(connection, at, request, lock=False)
    snapshot = index.snapshot(connection, draft.pool_row, at)
    window = draft.window
    taken = [
        (node_id, Booked(window.start_ms, window.end_ms, snapshot.views[node_id].atoms_mask, _PREVIEWED))
        for node_id in draft.node_ids
        if snapshot.views[node_id].atoms_mask
    ]
    snapshot = snapshot.with_bookings(taken, snapshot.version)
    ways = maintenance.in_the_way(connection, window, draft.node_ids, at.ms)
    told = _foretold(connection, at, draft.pool_row, snapshot, ways)
    return MaintenanceView(
        pool_id=draft.pool_row.id,
        reason=draft.reason,
        state="declared",
        start=window.start_ms,
        end=window.end_ms,
        nodes=_nodes(connection, dict.fromkeys(draft.node_ids, False), ways, told),
        version=0,
        created=at.ms,
    )


def _view(connection: Connection, at: Moment, row: RowMapping, index: PoolIndex) -> MaintenanceView:
    mine = select(MAINTENANCE_NODE).where(MAINTENANCE_NODE.c.maintenance_id == row["id"])
    booked = {one["node_id"]: bool(one["booked"]) for one in connection.execute(mine).mappings()}
    ways: dict[str, list[str]] = {}
    told: dict[str, InTheWay] = {}
    unbooked = [node_id for node_id, is_booked in booked.items() if not is_booked]
    if row["ended_ms"] is None and unbooked:
        ways = maintenance.in_the_way(connection, Window(row["start_ms"], row["end_ms"]), unbooked, at.ms)
        pool_row = read.known_pool(connection, row["pool_id"])
        told = _foretold(connection, at, pool_row, index.snapshot(connection, pool_row, at), ways)
    return MaintenanceView(
        id=row["id"],
        pool_id=row["pool_id"],
        reason=row["reason"],
        state=row["state"],
        start=row["start_ms"],
        end=row["end_ms"],
        nodes=_nodes(connection, booked, ways, told),
        version=row["version"],
        created=row["created_ms"],
        ended=row["ended_ms"],
    )


def _nodes(
    connection: Connection,
    booked: Mapping[str, bool],
    ways: Mapping[str, Collection[str]],
    told: Mapping[str, InTheWay],
) -> list[MaintenanceNodeView]:
    named = connection.execute(select(NODE.c.id, NODE.c.name).where(NODE.c.id.in_(booked)).order_by(NODE.c.name))
    return [
        MaintenanceNodeView(
            node_id=row.id,
            node_name=row.name,
            booked=booked[row.id],
            in_the_way=[told[one] for one in ways.get(row.id, ()) if one in told],
        )
        for row in named
    ]


def _foretold(
    connection: Connection, at: Moment, pool_row: PoolRow, snapshot: Snapshot, ways: Mapping[str, Iterable[str]]
) -> dict[str, InTheWay]:
    """Tell of everybody who is in the way what becomes of them, soonest start first, each after the moves before."""
    nodes_of: dict[str, set[str]] = {}
    for node_id, reservation_ids in ways.items():
        for reservation_id in reservation_ids:
            nodes_of.setdefault(reservation_id, set()).add(node_id)
    shunned = untrusted(snapshot, storm.seen(snapshot, at.ms), at.ms, pool_row.policy)
    told: dict[str, InTheWay] = {}
    for number, reservation_id in enumerate(read.soonest_first(connection, nodes_of)):
        found = read.reservation(connection, reservation_id)
        assert found is not None, "reservations are never deleted"
        reservation = found[0]
        if reservation.state is not State.PLACED or number >= _PLANNED_MAX:
            told[reservation_id] = _in_the_way(reservation, _why_it_stays(reservation))
            continue
        bad = frozenset(nodes_of[reservation_id])
        window = Window(max(reservation.start_ms, at.ms), reservation.window.end_ms)
        answer = plan_repair(reservation, bad, snapshot, window, pool_row.policy, seed=0, shunned=bad | shunned)
        if isinstance(answer, Refusal):
            told[reservation_id] = _in_the_way(reservation, f"stays for now: {answer.sentence}")
            continue
        snapshot = _after(snapshot, reservation, answer, window.occupied(pool_row.policy.turnaround_ms))
        names = sorted(snapshot.views[node_id].node.name for node_id in _gang(answer))
        told[reservation_id] = _in_the_way(reservation, "moves: it fits elsewhere", names)
    return told


def _after(snapshot: Snapshot, reservation: Reservation, answer: Repaired, occupied: Window) -> Snapshot:
    left = snapshot.without(reservation.id, [member.node_id for member in reservation.members])
    booked = [
        (node_id, Booked(occupied.start_ms, occupied.end_ms, mask, reservation.id))
        for node_id, mask in _gang(answer).items()
    ]
    return left.with_bookings(booked, left.version)


def _gang(answer: Repaired) -> dict[str, int]:
    return {one.node_id: one.mask for one in answer.kept} | {one.node_id: one.mask for one in answer.added}


def _in_the_way(reservation: Reservation, reason: str, moves_to: list[str] | None = None) -> InTheWay:
    return InTheWay(
        reservation_id=reservation.id,
        state=reservation.state,
        start=reservation.start_ms,
        end=reservation.window.end_ms,
        reason=reason,
        moves_to=moves_to or [],
    )


def _why_it_stays(reservation: Reservation) -> str:
    match reservation.state:
        case State.PLACED:
            return "is tried in its turn"
        case State.BINDING | State.ACTIVE:
            end = format_instant(reservation.window.end_ms)
            return f"stays: it is {reservation.state} until {end}, and what runs is never thrown out"
        case _:
            return "stays until every node has confirmed its release"
