"""Reservations come in and are placed: plan, commit all members or none, and again when a race was lost."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, insert, select
from sqlalchemy.exc import IntegrityError

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.model import Move
from muster_coordinator.core.model import Reservation, State
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service import draft as drafts
from muster_coordinator.service.bodies import Blocker, Condition, ReservationRequest
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact, Lost
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import RESERVATION
from muster_shared.codec import dumps, encode
from muster_shared.errors import Code, FieldError, Problem

DEFAULT_POOL = "default"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The answer to a create: which reservation, and whether an earlier call had made it."""

    reservation_id: str
    replayed: bool


def reserve(connection: Connection, at: Moment, request: ReservationRequest) -> Admitted:
    """Create a reservation and place it at once where it fits; else it is pending and says why.

    A flow: the plan is made between its transactions, and the commit checks it again.

    Args:
        connection: Outside any transaction.
        at: Now; relative instants count from it.
        request: As the tenant wrote it.

    Raises:
        Problem: `INVALID_INPUT`, `NOT_FOUND` for the pool, `IDEMPOTENCY_MISMATCH`. Nothing was stored.
    """
    with connection.begin():
        if (earlier := _earlier(connection, request)) is not None:
            return earlier
        pool_row = wanted_pool(connection, request)
        snapshot = read.snapshot(connection, pool_row, at.ms)
    draft = drafts.drafted(request, at.ms, pool_row.policy)
    reservation = draft.reservation(request, at.new_id("rsv"), pool_row.id, at.ms)

    def insert_pending() -> Admitted | None:
        if (earlier := _earlier(connection, request)) is not None:
            return earlier
        connection.execute(insert(RESERVATION).values(**_columns(request, reservation, at, pool_row)))
        data = {"tenantId": request.tenant_id, "size": reservation.size, "start": reservation.start_ms}
        commit.record(connection, at, reservation, Fact("reservation.created", data))
        return None

    try:
        answer = _place(connection, at, pool_row, snapshot, reservation, insert_pending)
    except IntegrityError:
        # The same key came in for another pool at the same time: no lock of ours is common to both.
        with connection.begin():
            if (earlier := _earlier(connection, request)) is None:
                raise
            return earlier
    return answer or Admitted(reservation.id, replayed=False)


def retry(connection: Connection, at: Moment, reservation_id: str, snapshot: Snapshot | None = None) -> bool:
    """Try to place a pending reservation; return whether it is placed now. A flow, like `reserve`."""
    with connection.begin():
        found = read.reservation(connection, reservation_id)
        if found is None or found[0].state is not State.PENDING:
            return False
        pool_row = _known(read.pool(connection, found[0].pool_id))
        pool_now = snapshot or read.snapshot(connection, pool_row, at.ms)
    _place(connection, at, pool_row, pool_now, found[0], lambda: None)
    with connection.begin():
        after = read.reservation(connection, reservation_id)
    return after is not None and after[0].state is State.PLACED


def wanted_pool(connection: Connection, request: ReservationRequest) -> PoolRow:
    """Return the pool that a request names, or the default one.

    Raises:
        Problem: `NOT_FOUND`.
    """
    name = request.pool_id or DEFAULT_POOL
    pool_row = read.pool(connection, name)
    if pool_row is None:
        raise drafts.pool_missing(name)
    return pool_row


def _place(
    connection: Connection,
    at: Moment,
    pool_row: PoolRow,
    snapshot: Snapshot,
    reservation: Reservation,
    before: Callable[[], Admitted | None],
) -> Admitted | None:
    """Plan and commit in rounds. `before` runs first in the committing transaction and may answer in its place."""
    excluded: frozenset[str] = frozenset()
    for attempt in range(1, pool_row.policy.max_attempts + 1):
        decision = decide(snapshot, reservation, at, pool_row, excluded)
        is_last = attempt == pool_row.policy.max_attempts
        with connection.begin() as transaction:
            read.pool(connection, pool_row.id, lock=True)
            if (answer := before()) is not None:
                return answer
            current = read.reservation(connection, reservation.id, lock=True)
            if current is None or current[0].state is not State.PENDING:
                return None  # cancelled, or placed by somebody else
            lost = _commit(connection, at, pool_row, current, decision, is_last=is_last)
            if lost is None:
                return None
            transaction.rollback()
        # Every node that refused in this round stays out: a gang must not burn its attempts one stale node at a time.
        excluded |= lost.node_ids
        with connection.begin():
            snapshot = read.snapshot(connection, pool_row, at.ms)
    return None


def decide(
    snapshot: Snapshot, reservation: Reservation, at: Moment, pool_row: PoolRow, excluded: frozenset[str] = frozenset()
) -> Plan | Refusal | None:
    """Return the plan for what a placement made now would book; None when it is too late for any."""
    window = reservation.window_from(at.ms)
    if window is None:
        return None
    policy = pool_row.policy
    request = reservation.request(window.occupied(policy.turnaround_ms))
    return plan(snapshot, request, seed=at.new_seed(), top_n=policy.top_n, excluded=excluded)


def _commit(
    connection: Connection,
    at: Moment,
    pool_row: PoolRow,
    current: tuple[Reservation, RowMapping],
    decision: Plan | Refusal | None,
    *,
    is_last: bool,
) -> Lost | None:
    reservation, row = current
    window = reservation.window_from(at.ms)
    if decision is None or window is None:
        return None  # the lifecycle will expire it
    if isinstance(decision, Refusal):
        keep_pending(connection, at, pool_row, current, condition_of(decision, repairing=reservation.repairing))
        return None
    lost = commit.book(connection, at, pool_row, reservation, decision.members, window, decision.topology_value)
    if lost is not None:
        if is_last:
            keep_pending(connection, at, pool_row, current, _lost_race(lost))
            return None
        return lost
    data: dict[str, object] = {
        "nodeIds": [member.node_id for member in decision.members],
        "start": window.start_ms,
        "end": window.end_ms,
    }
    if decision.topology_value is not None:
        data["topologyValue"] = decision.topology_value
    commit.record(
        connection,
        at,
        reservation,
        Fact("reservation.placed", data),
        Move.PLACE,
        start_ms=window.start_ms,
        duration_ms=window.duration_ms,
        generation=row["generation"] + 1,
        topology_value=decision.topology_value,
        seed=decision.seed,
        condition=None,
        risks="[]",
        repairing=False,
        retry_due_ms=None,
        check_due_ms=max(at.ms, window.start_ms - pool_row.policy.repair_lead_ms),
    )
    return None


def keep_pending(
    connection: Connection,
    at: Moment,
    pool_row: PoolRow,
    current: tuple[Reservation, RowMapping],
    condition: Condition,
) -> None:
    """Leave a reservation pending, with the reason; a reason that has not changed is no event."""
    reservation, row = current
    written = encode(condition).decode()
    due_ms = at.ms + pool_row.policy.retry_interval_ms
    if row["condition"] == written:
        connection.execute(RESERVATION.update().where(RESERVATION.c.id == reservation.id).values(retry_due_ms=due_ms))
        return
    fact = Fact("reservation.unschedulable", {"reason": condition.reason, "message": condition.message})
    commit.record(connection, at, reservation, fact, condition=written, retry_due_ms=due_ms)


def condition_of(refusal: Refusal, *, repairing: bool = False) -> Condition:
    """Return a refusal as the API shows it."""
    return Condition(
        type="Unschedulable",
        reason="BookingRepairFailed" if repairing else refusal.code,
        message=refusal.sentence,
        blockers=[
            Blocker(reason=blocker.code, nodes=blocker.nodes, until=blocker.until_ms) for blocker in refusal.blockers
        ],
    )


def _lost_race(lost: Lost) -> Condition:
    nodes = len(lost.node_ids)
    message = f"lost the race for {nodes} node{'' if nodes == 1 else 's'} in every round; it is tried again by itself"
    return Condition(type="Unschedulable", reason="lostRace", message=message)


def _earlier(connection: Connection, request: ReservationRequest) -> Admitted | None:
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


def _columns(request: ReservationRequest, reservation: Reservation, at: Moment, pool_row: PoolRow) -> dict[str, object]:
    shape = reservation.shape
    return {
        "id": reservation.id,
        "tenant_id": request.tenant_id,
        "pool_id": pool_row.id,
        "name": request.name,
        "state": State.PENDING,
        "risks": "[]",
        "request": encode(request).decode(),
        "kind": shape.kind,
        "count": shape.count,
        "topology": shape.topology,
        "model": shape.model,
        "memory_mib": shape.memory_mib,
        "selector": dumps(dict(shape.selector)).decode(),
        "size": reservation.size,
        "topology_key": reservation.topology_key,
        "start_ms": reservation.start_ms,
        "duration_ms": reservation.duration_ms,
        "fixed_end_ms": reservation.fixed_end_ms,
        "latest_start_ms": reservation.latest_start_ms,
        "generation": 0,
        "version": 0,
        "seed": 0,
        "repairing": False,
        "retry_due_ms": at.ms + pool_row.policy.retry_interval_ms,
        "created_ms": at.ms,
        "idempotency_key": request.idempotency_key,
        "body_hash": drafts.body_hash(request),
    }


def _known(pool_row: PoolRow | None) -> PoolRow:
    assert pool_row is not None, "a reservation's pool exists: the foreign key says so"
    return pool_row
