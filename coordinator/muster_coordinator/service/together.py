"""Requests that wait for their turn in one pool, placed one after the other and committed in one transaction.

A commit costs a dozen round trips and a wait for the disk, whether it holds one gang or thirty.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, insert, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Booked, Reservation
from muster_coordinator.core.placement.pipeline import Plan
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.quota import Allowance, Verdict, least_milli
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service import draft as drafts
from muster_coordinator.service.access import audit
from muster_coordinator.service.access.guard import Guard, of_reservation
from muster_coordinator.service.access.weight import weight_of_reservation
from muster_coordinator.service.accounts.charge import OverQuota, allowances, charge_new, judged
from muster_coordinator.service.admit import (
    Admitted,
    audited,
    decide,
    new_rows,
    placement,
    told,
    wanted_pool,
)
from muster_coordinator.service.bodies import ReservationRequest
from muster_coordinator.service.index import PoolIndex, bookings_of
from muster_coordinator.service.series.occurrence import Wanted
from muster_coordinator.service.waiting import pending_columns
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Entry, Fact
from muster_coordinator.store.tables import RESERVATION
from muster_shared.errors import Problem

_NEW_RESERVATION: Final = insert(RESERVATION)


class NotAsPlannedError(Exception):
    """Somebody else was faster, or a request is a repeated one: nothing was written; each takes its own way."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A request, and who asks."""

    request: ReservationRequest
    guard: Guard | None = None  # None for the coordinator itself


@dataclass(frozen=True, slots=True)
class Drafted:
    """A request, and what was decided on it: a plan, a refusal, or that it is too late; a problem if it is none."""

    request: ReservationRequest
    guard: Guard | None = None  # of whoever asks; None for the coordinator itself
    reservation: Reservation | None = None
    decision: Plan | Refusal | OverQuota | None = None
    problem: Problem | None = None
    milli: int = 0  # of the plan


@dataclass(frozen=True, slots=True)
class Batch:
    """Decisions on one pool, each made as if those before it were placed already."""

    snapshot: Snapshot
    drafts: Sequence[Drafted]
    bookings: Sequence[tuple[str, Booked]]  # of all plans ...
    following: Snapshot  # ... and the pool with them, as the index follows it once they are committed


def draft_all(connection: Connection, at: Moment, asking: Sequence[Asking], index: PoolIndex) -> Batch:
    """Plan requests of one pool in their order. Nothing is held.

    Raises:
        Problem: `NOT_FOUND` for the pool, which all of them name.
    """
    pool_row = wanted_pool(connection, asking[0].request)
    snapshot = following = index.snapshot(connection, pool_row, at)
    drafted: list[Drafted] = []
    bookings: list[tuple[str, Booked]] = []
    allowed = allowances(connection, pool_row.id, [asked.request.tenant_id for asked in asking])
    for asked in asking:
        request = asked.request
        try:
            draft = drafts.drafted(request, at.ms, pool_row.policy)
        except Problem as problem:
            drafted.append(Drafted(request, asked.guard, problem=problem))
            continue
        reservation = draft.reservation(request, at.new_id("rsv"), pool_row.id, at.ms)
        decision = decide(following, reservation, at, pool_row)
        one = _drafted(asked, reservation, decision, following, allowed[request.tenant_id])
        drafted.append(one)
        if isinstance(decision, Plan) and isinstance(one.decision, Plan):
            allowed[request.tenant_id] = allowed[request.tenant_id].with_more(0 if reservation.spot else one.milli)
            window = placement(decision, reservation, at, pool_row).window.occupied(pool_row.policy.turnaround_ms)
            booked = bookings_of(reservation.id, decision.members, window)
            bookings += booked
            following = following.with_bookings(booked, snapshot.version + 1)
    return Batch(snapshot, drafted, bookings, following)


def _drafted(
    asked: Asking,
    reservation: Reservation,
    decision: Plan | Refusal | None,
    snapshot: Snapshot,
    allowance: Allowance,
) -> Drafted:
    """Let the quota have its say on what was planned."""
    planned = decision if isinstance(decision, Plan) else None
    milli = least_milli(reservation.shape, reservation.size) if planned is None else planned.milli(snapshot)
    over = judged(reservation, milli, allowance)
    if over is not None and over.never:
        return Drafted(asked.request, asked.guard, reservation, problem=over.problem)
    if over is not None and planned is not None:
        return Drafted(asked.request, asked.guard, reservation, over)
    return Drafted(asked.request, asked.guard, reservation, decision, milli=milli)


def enter_all(connection: Connection, at: Moment, batch: Batch) -> list[Admitted | Problem]:
    """Store what was decided, all of it or nothing, and return the answer to each request.

    Args:
        connection: In a transaction of its own, which ends with this body.
        at: The moment at which the batch was planned: silence was judged then.
        batch: Of `draft_all`.

    Raises:
        NotAsPlannedError: The pool has changed since, the database refused a booking, a key was used before, a
            quota is not what it was, or a policy forbids one of them.
    """
    asked = [(one, one.reservation) for one in batch.drafts if one.reservation is not None]
    made = [(one, reservation) for one, reservation in asked if one.problem is None]
    answers: list[Admitted | Problem] = []
    if asked:
        pool_row = read.known_pool(connection, batch.snapshot.pool_id, lock=True)
        if pool_row.version != batch.snapshot.version or _is_known(connection, batch):
            raise NotAsPlannedError
        _check(connection, pool_row, asked)
        _refuse_over_quota(connection, pool_row.id, made)
        if made:
            _write(connection, at, pool_row, made)
    for one in batch.drafts:
        if one.reservation is None or one.problem is not None:
            assert one.problem is not None, "what is no reservation has a problem"
            answers.append(one.problem)
            continue
        is_due = isinstance(one.decision, Plan) and one.reservation.start_ms <= at.ms
        answers.append(Admitted(one.reservation.id, replayed=False, is_due=is_due))
    return answers


def _check(connection: Connection, pool_row: read.PoolRow, made: Sequence[tuple[Drafted, Reservation]]) -> None:
    """Let each go their own way, and be told alone, where one of them is not allowed to."""
    guarded = [(one.guard, reservation) for one, reservation in made if one.guard is not None]
    if not guarded:
        return
    policies = guarded[0][0].book.current(connection).policies
    for guard, reservation in guarded:
        try:
            guard.judge(policies, of_reservation(reservation, pool_row), weight_of_reservation(reservation))
        except Problem:
            raise NotAsPlannedError from None


def _write(
    connection: Connection, at: Moment, pool_row: read.PoolRow, made: Sequence[tuple[Drafted, Reservation]]
) -> None:
    rows: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    entries: list[Entry] = []
    charged: list[tuple[Reservation, int]] = []
    kept: list[audit.Row] = []
    for one, reservation in made:
        if isinstance(one.decision, Plan):
            charged.append((reservation, one.milli))
            placed = placement(one.decision, reservation, at, pool_row)
            columns: dict[str, Any] = placed.columns
            fact: Fact | None = placed.fact
            entries.append(Entry(reservation, one.decision.members, placed.window))
        else:
            said, fact = told(one.decision)
            over = isinstance(one.decision, OverQuota)
            columns = {**said, **pending_columns(reservation, at.ms, over_quota=over)}
        row, own = new_rows(at, Wanted(one.request, reservation), columns, fact)
        rows.append(row)
        events += own
        kept += audited(one.guard, reservation, fact)
    # One statement has one list of columns.
    names = dict.fromkeys(name for row in rows for name in row)
    connection.execute(_NEW_RESERVATION, [{name: row.get(name) for name in names} for row in rows])
    commit.write_events(connection, events)
    charge_new(connection, at, charged)
    audit.write(connection, kept)
    if entries and commit.entered(connection, at, pool_row, entries) is not None:
        raise NotAsPlannedError


def _refuse_over_quota(connection: Connection, pool_id: str, made: Sequence[tuple[Drafted, Reservation]]) -> None:
    """Look once more whether the quotas allow all of a batch: its plans were made without the pool's lock."""
    charged: Counter[str] = Counter()
    for one, reservation in made:
        if isinstance(one.decision, Plan) and not reservation.spot:
            charged[reservation.tenant_id] += one.milli
    for tenant_id, allowance in allowances(connection, pool_id, charged).items():
        if allowance.with_more(charged[tenant_id]).verdict(0) is not Verdict.FITS:
            raise NotAsPlannedError


def _is_known(connection: Connection, batch: Batch) -> bool:
    """Tell whether a key of the batch was used before."""
    keys = [(one.request.tenant_id, one.request.idempotency_key) for one in batch.drafts if one.request.idempotency_key]
    if not keys:
        return False
    if len(set(keys)) < len(keys):
        return True
    wanted = select(RESERVATION.c.tenant_id, RESERVATION.c.idempotency_key)
    rows = connection.execute(wanted.where(RESERVATION.c.idempotency_key.in_({key for _, key in keys})))
    return not set(keys).isdisjoint((tenant_id, key) for tenant_id, key in rows)
