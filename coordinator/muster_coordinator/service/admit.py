"""Reservations come in and are placed: plan, commit all members or none, and again when a race was lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Reservation, State
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.quota import least_milli
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service import draft as drafts
from muster_coordinator.service.access import audit
from muster_coordinator.service.access.caller import Resource
from muster_coordinator.service.access.guard import Guard, of_reservation
from muster_coordinator.service.access.weight import weight_of_reservation
from muster_coordinator.service.accounts.charge import OverQuota, charge, over_quota
from muster_coordinator.service.bodies import Asked, ReservationRequest
from muster_coordinator.service.conditions import condition_of, lost_race, unschedulable
from muster_coordinator.service.index import PoolIndex, bookings_of
from muster_coordinator.service.series.occurrence import Occurrence, Wanted, made_before, refuse_unwanted
from muster_coordinator.service.waiting import pending_columns
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Entry, Fact, Lost
from muster_coordinator.store.documents import written, written_agreed
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import RESERVATION
from muster_shared.codec import encode
from muster_shared.errors import Code, FieldError, Problem
from muster_shared.time import Window

_NEW_RESERVATION: Final = insert(RESERVATION)

DEFAULT_POOL = "default"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The answer to a create: which reservation, and whether an earlier call had made it."""

    reservation_id: str
    replayed: bool
    is_due: bool = False  # it is placed, and its start has come


def reserve(
    connection: Connection, at: Moment, request: ReservationRequest, index: PoolIndex, guard: Guard | None = None
) -> Admitted:
    """Create a reservation and place it at once where it fits; else it is pending and says why.

    A flow: the plan is made between its transactions, and the commit checks it again.

    Args:
        connection: Outside any transaction.
        at: Now; relative instants count from it.
        request: As the tenant wrote it.
        index: The pools in memory.
        guard: Of whoever asks; None for the coordinator itself.

    Raises:
        Problem: `INVALID_INPUT`, `NOT_FOUND` for the pool, `IDEMPOTENCY_MISMATCH`, `FORBIDDEN`, `QUOTA_EXCEEDED`.
            Nothing was stored.
    """
    with connection.begin():
        pool_row = wanted_pool(connection, request)
        if (earlier := earlier_one(connection, request)) is not None:
            _check_replay(connection, guard, earlier, request, pool_row)
            return earlier
        snapshot = index.snapshot(connection, pool_row, at)
    draft = drafts.drafted(request, at.ms, pool_row.policy)
    wanted = Wanted(request, draft.reservation(request, at.new_id("rsv"), pool_row.id, at.ms))
    try:
        return created(connection, at, pool_row, wanted, snapshot, index, guard)
    except IntegrityError:
        # The same key came in for another pool at the same time: no lock of ours is common to both.
        with connection.begin():
            if (earlier := earlier_one(connection, request)) is None:
                raise
            _check_replay(connection, guard, earlier, request, pool_row)
            return earlier


def _check_replay(
    connection: Connection, guard: Guard | None, earlier: Admitted, request: ReservationRequest, pool_row: PoolRow
) -> None:
    """Let nobody see by its key what they may not see by its id."""
    if guard is not None:
        resource = Resource("Reservation", earlier.reservation_id, pool_row.name, request.tenant_id)
        guard.check(connection, resource, None, "compute:reservation:read")


def created(
    connection: Connection,
    at: Moment,
    pool_row: PoolRow,
    wanted: Wanted,
    snapshot: Snapshot,
    index: PoolIndex,
    guard: Guard | None = None,
) -> Admitted:
    """Place and store a new reservation, planned again for each race that it loses. A flow, like `reserve`.

    Args:
        connection: Outside any transaction.
        at: Now.
        pool_row: Its pool.
        wanted: What is to be made, unless that has been done before.
        snapshot: Of the pool, to plan on first.
        index: For the rounds after a lost race.
        guard: Of whoever asks; None for the coordinator itself.

    Raises:
        Problem: `FORBIDDEN`; `QUOTA_EXCEEDED` for more than its tenant may hold at all, occurrences apart; `CONFLICT`
            for an occurrence that its series does not want any more. Nothing was stored.
    """
    excluded: frozenset[str] = frozenset()
    for _ in range(pool_row.policy.max_attempts):
        decision = decide(snapshot, wanted.reservation, at, pool_row, excluded)
        answer = _entered(connection, at, wanted, decision, snapshot, index, guard)
        if isinstance(answer, Admitted):
            return answer
        # Every node that refused in this round stays out: a gang must not burn its rounds one stale node at a time.
        excluded |= answer.node_ids
        with connection.begin():
            snapshot = index.snapshot(connection, read.known_pool(connection, pool_row.id), at)
    answer = _entered(connection, at, wanted, Lost(excluded), snapshot, index, guard)
    assert isinstance(answer, Admitted), "what has lost every race is stored as pending"
    return answer


def _entered(
    connection: Connection,
    at: Moment,
    wanted: Wanted,
    decision: Plan | Refusal | Lost | None,
    snapshot: Snapshot,
    index: PoolIndex,
    guard: Guard | None,
) -> Admitted | Lost:
    """Store a new reservation with what was decided on it, in one transaction; nothing where it lost a race."""
    reservation = wanted.reservation
    with connection.begin() as transaction:
        pool_row = read.known_pool(connection, reservation.pool_id, lock=True)
        if (earlier := earlier_one(connection, wanted.request, wanted.occurrence)) is not None:
            _check_replay(connection, guard, earlier, wanted.request, pool_row)
            return earlier
        if wanted.occurrence is not None:
            refuse_unwanted(connection, wanted.occurrence)
        check_new(connection, guard, reservation, pool_row)
        over = _over_quota(connection, wanted, decision, snapshot)
        if over is not None or not isinstance(decision, Plan):
            columns, fact = told(over if over is not None or isinstance(decision, Plan) else decision)
            waits = pending_columns(reservation, at.ms, over_quota=over is not None)
            insert_new(connection, at, wanted, {**columns, **waits}, fact)
            audit.write(connection, audited(guard, reservation, fact))
            return Admitted(reservation.id, replayed=False)
        placed = placement(decision, reservation, at, pool_row)
        members, window = decision.members, placed.window
        # An unchanged version stays so: whoever changes a node holds the pool's row. Silence was judged at `at`.
        is_as_planned = pool_row.version == snapshot.version
        lost: Lost | None = None
        if not is_as_planned:
            lost = commit.refusing(connection, at, pool_row, reservation, members, window, snapshot.version)
        if lost is None:
            insert_new(connection, at, wanted, placed.columns, placed.fact)
            charge(connection, at, reservation, decision.milli(snapshot))
            audit.write(connection, audited(guard, reservation, placed.fact))
            lost = commit.entered(connection, at, pool_row, [Entry(reservation, members, window)])
        if lost is not None:
            transaction.rollback()
            return lost
    if is_as_planned:
        occupied = window.occupied(pool_row.policy.turnaround_ms)
        index.booked(snapshot, bookings_of(reservation.id, members, occupied))
    return Admitted(reservation.id, replayed=False, is_due=window.start_ms <= at.ms)


def check_new(connection: Connection, guard: Guard | None, reservation: Reservation, pool_row: PoolRow) -> None:
    """Ask the policies whether somebody may make this reservation.

    Raises:
        Problem: `FORBIDDEN`.
    """
    if guard is not None:
        guard.check(connection, of_reservation(reservation, pool_row), weight_of_reservation(reservation))


def audited(guard: Guard | None, reservation: Reservation, fact: Fact | None) -> list[audit.Row]:
    """Return what the audit log keeps of a create whose second event is `fact`."""
    return [] if guard is None else [guard.row({reservation.id: (0, 1 if fact is None else 2)})]


def _over_quota(
    connection: Connection, wanted: Wanted, decision: Plan | Refusal | Lost | None, snapshot: Snapshot
) -> OverQuota | None:
    """Return what the quota says of a new reservation; None where it may be placed, or waits for something else.

    Raises:
        Problem: `QUOTA_EXCEEDED`: it is more than its tenant may hold at all. An occurrence waits even so: its series
            was accepted, and limits change.
    """
    one = wanted.reservation
    if isinstance(decision, Plan):
        over = over_quota(connection, one, decision.milli(snapshot))
    else:
        over = over_quota(connection, one, least_milli(one.shape, one.size))
        over = over if over is not None and over.never else None
    if over is not None and over.never and wanted.occurrence is None:
        raise over.problem
    return over


def told(decision: Refusal | OverQuota | Lost | None) -> tuple[dict[str, Any], Fact | None]:
    """Return what a reservation that waits is told, as columns and event."""
    if decision is None:
        return {}, None
    match decision:
        case Lost():
            condition = lost_race(decision)
        case OverQuota():
            condition = decision.condition
        case Refusal():
            condition = condition_of(decision)
    return {"condition": encode(condition).decode()}, unschedulable(condition)


def insert_new(
    connection: Connection, at: Moment, wanted: Wanted, decided: Mapping[str, Any], fact: Fact | None
) -> None:
    """Store a new reservation with what was decided on it: columns, and the event that tells it."""
    columns, events = new_rows(at, wanted, decided, fact)
    connection.execute(_NEW_RESERVATION, columns)
    commit.write_events(connection, events)


def new_rows(
    at: Moment, wanted: Wanted, decided: Mapping[str, Any], fact: Fact | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a new reservation as its row and those of its events."""
    reservation = wanted.reservation
    asked = {"tenantId": reservation.tenant_id, "size": reservation.size, "start": reservation.start_ms}
    if wanted.occurrence is not None:
        asked |= {"seriesId": wanted.occurrence.series_id, "occurrence": wanted.occurrence.occurrence_ms}
    facts = [Fact("reservation.created", asked), *([] if fact is None else [fact])]
    columns = {**_columns(wanted, at), **decided, "version": len(facts)}
    return columns, commit.event_rows(at, facts, subject=reservation.id, version=1, pool_id=reservation.pool_id)


def wanted_pool(connection: Connection, request: Asked) -> PoolRow:
    """Return the pool that a request names, or the default one.

    Raises:
        Problem: `NOT_FOUND`.
    """
    name = request.pool_id or DEFAULT_POOL
    pool_row = read.pool(connection, name)
    if pool_row is None:
        raise drafts.pool_missing(name)
    return pool_row


def decide(
    snapshot: Snapshot, reservation: Reservation, at: Moment, pool_row: PoolRow, excluded: frozenset[str] = frozenset()
) -> Plan | Refusal | None:
    """Return the plan for what a placement made now would book; None when it is too late for any."""
    window = reservation.window_from(at.ms)
    if window is None:
        return None
    request = reservation.request(window.occupied(pool_row.policy.turnaround_ms))
    return plan(snapshot, request, pool_row.policy, seed=at.new_seed(), excluded=excluded)


@dataclass(frozen=True, slots=True)
class Placement:
    """What a plan makes of a reservation."""

    window: Window
    columns: dict[str, Any]
    fact: Fact


def placement(decision: Plan, reservation: Reservation, at: Moment, pool_row: PoolRow) -> Placement:
    """Return what a plan that is committed now writes into its reservation."""
    window = reservation.window_from(at.ms)
    assert window is not None, "a plan was made for it"
    data: dict[str, Any] = {
        "nodeIds": [member.node_id for member in decision.members],
        "start": window.start_ms,
        "end": window.end_ms,
        "topology": dict(decision.agreed),
        "seed": decision.seed,
    }
    columns = {
        "state": State.PLACED,
        "start_ms": window.start_ms,
        "duration_ms": window.duration_ms,
        "generation": reservation.generation + 1,
        "agreed": written_agreed(decision.agreed),
        "seed": decision.seed,
        "condition": None,
        "wait_key": None,
        "risks": "[]",
        "repairing": False,
        "check_due_ms": max(at.ms, window.start_ms - pool_row.policy.repair_lead_ms),
    }
    return Placement(window, columns, Fact("reservation.placed", data))


def earlier_one(
    connection: Connection, request: ReservationRequest, occurrence: Occurrence | None = None
) -> Admitted | None:
    """Return what an earlier call with the same key, or an earlier pass, has made; None where there was none.

    Raises:
        Problem: `IDEMPOTENCY_MISMATCH`: the call had another body.
    """
    if occurrence is not None:
        made = made_before(connection, occurrence)
        return None if made is None else Admitted(made, replayed=True)
    if request.idempotency_key is None:
        return None
    wanted = select(RESERVATION.c.id, RESERVATION.c.body_hash).where(
        RESERVATION.c.tenant_id == request.tenant_id, RESERVATION.c.idempotency_key == request.idempotency_key
    )
    row = connection.execute(wanted).first()
    if row is None:
        return None
    if row.body_hash != drafts.body_hash(request):
        raise Problem(
            Code.IDEMPOTENCY_MISMATCH,
            f"the key {request.idempotency_key!r} was used for another request ({row.id}): use a new key",
            (FieldError("idempotencyKey", "used with another body"),),
        )
    return Admitted(row.id, replayed=True)


def _columns(wanted: Wanted, at: Moment) -> dict[str, object]:
    request, reservation, occurrence = wanted.request, wanted.reservation, wanted.occurrence
    return {
        "id": reservation.id,
        "tenant_id": request.tenant_id,
        "pool_id": reservation.pool_id,
        "name": request.name,
        "state": State.PENDING,
        "risks": "[]",
        "request": encode(request).decode(),
        "shape": written(reservation.shape),
        "size": reservation.size,
        "grouping": written(reservation.grouping),
        "agreed": "[]",
        "start_ms": reservation.start_ms,
        "duration_ms": reservation.duration_ms,
        "fixed_end_ms": reservation.fixed_end_ms,
        "latest_start_ms": reservation.latest_start_ms,
        "generation": 0,
        "seed": 0,
        "repairing": False,
        "on_member_loss": reservation.on_member_loss,
        "created_ms": at.ms,
        "series_id": None if occurrence is None else occurrence.series_id,
        "occurrence_ms": None if occurrence is None else occurrence.occurrence_ms,
        "idempotency_key": request.idempotency_key,
        "body_hash": drafts.body_hash(request),
    }
