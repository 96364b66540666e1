"""Pending work is tried again: plan, commit all members or none, and again when a race was lost."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.model import Move
from muster_coordinator.core.model import Reservation, State
from muster_coordinator.core.placement.pipeline import Plan
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service.accounts.charge import OverQuota, charge, over_quota
from muster_coordinator.service.admit import decide, placement, told
from muster_coordinator.service.bodies import Condition
from muster_coordinator.service.conditions import condition_of, keep_pending, lost_race
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.waiting import heads, pending_columns
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Lost
from muster_coordinator.store.read import PoolRow


@dataclass(frozen=True, slots=True)
class Retried:
    """What came of another try: placed, or refused, or neither: gone, too late, or lost in a race."""

    reservation_id: str
    is_placed: bool = False
    refusal: Condition | None = None  # of all its line
    has_left: bool = False  # its line, which goes on without it: it is over its quota


def retry_first(
    connection: Connection, at: Moment, pool_id: str, key: str, index: PoolIndex
) -> tuple[Retried | None, int | None]:
    """Try the oldest reservation of a line. A flow, like `reserve`.

    Returns:
        What came of it, None where nobody waits any more; and when the next of the line was made, None without one.
    """
    with connection.begin():
        first = heads(connection, pool_id, key, 2)
        if not first:
            return None, None
        snapshot = index.snapshot(connection, read.known_pool(connection, pool_id), at)
    next_ms = first[1].created_ms if len(first) > 1 else None
    return retry(connection, at, first[0].id, snapshot, index), next_ms


def retry(connection: Connection, at: Moment, reservation_id: str, snapshot: Snapshot, index: PoolIndex) -> Retried:
    """Try to place a pending reservation. A flow, like `reserve`.

    Args:
        connection: Outside any transaction.
        at: Now.
        reservation_id: Of any state; one that is not pending any more is left alone.
        snapshot: Of its pool, to plan on first.
        index: For the rounds after a lost race.
    """
    with connection.begin():
        found = read.reservation(connection, reservation_id)
        if found is None or found[0].state is not State.PENDING:
            return Retried(reservation_id)
        reservation, pool_row = found[0], read.known_pool(connection, found[0].pool_id)
    excluded: frozenset[str] = frozenset()
    for _ in range(pool_row.policy.max_attempts):
        decision = decide(snapshot, reservation, at, pool_row, excluded)
        if not isinstance(decision, Plan):
            return Retried(reservation_id, refusal=None if decision is None else condition_of(decision))
        with connection.begin() as transaction:
            locked = read.known_pool(connection, pool_row.id, lock=True)
            current = read.reservation(connection, reservation_id, lock=True)
            if current is None or current[0] != reservation:
                return Retried(reservation_id)  # cancelled, placed by somebody else, or not what was planned for
            over = over_quota(connection, reservation, decision.milli(snapshot))
            if over is not None:
                return _left_waiting(connection, at, current, over)
            lost = _place(connection, at, locked, current[0], decision, snapshot)
            if lost is None:
                return Retried(reservation_id, is_placed=True)
            transaction.rollback()
            excluded |= lost.node_ids
        with connection.begin():
            snapshot = index.snapshot(connection, read.known_pool(connection, pool_row.id), at)
    with connection.begin():
        read.known_pool(connection, pool_row.id, lock=True)
        current = read.reservation(connection, reservation_id, lock=True)
        if current is not None and current[0].state is State.PENDING:
            keep_pending(connection, at, current, lost_race(Lost(excluded)))
    return Retried(reservation_id)


def _left_waiting(
    connection: Connection, at: Moment, current: tuple[Reservation, RowMapping], over: OverQuota
) -> Retried:
    """Let a reservation wait in the line of its tenant's quota; one that is there already answers for the line."""
    reservation, row = current
    waits: dict[str, Any] = pending_columns(reservation, at.ms, over_quota=True)
    if row["wait_key"] == waits["wait_key"]:
        return Retried(reservation.id, refusal=over.condition)
    columns, fact = told(over)
    assert fact is not None, "who is over the quota is told so"
    commit.record(connection, at, reservation, fact, **columns, **waits)
    return Retried(reservation.id, has_left=True)


def _place(
    connection: Connection,
    at: Moment,
    pool_row: PoolRow,
    reservation: Reservation,
    decision: Plan,
    snapshot: Snapshot,
) -> Lost | None:
    if reservation.window_from(at.ms) is None:
        return None  # the lifecycle will expire it
    placed = placement(decision, reservation, at, pool_row)
    lost = commit.book(connection, at, pool_row, reservation, decision.members, placed.window, snapshot.version)
    if lost is None:
        charge(connection, at, reservation, decision.milli(snapshot))
        commit.record(connection, at, reservation, placed.fact, Move.PLACE, **placed.columns)
    return lost
