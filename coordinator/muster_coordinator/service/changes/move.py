"""A reservation that has not begun gets another window: as a whole, or not at all."""

from dataclasses import replace

from sqlalchemy import Connection

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.model import Move
from muster_coordinator.core.model import Reservation, State
from muster_coordinator.core.placement.pipeline import Plan
from muster_coordinator.service.accounts.charge import OverQuota, charge, over_quota
from muster_coordinator.service.admit import decide, placement, told
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.waiting import pending_columns
from muster_coordinator.store import commit
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow
from muster_shared.errors import Code, Problem
from muster_shared.time import Window


def move(
    connection: Connection,
    at: Moment,
    pool_row: PoolRow,
    reservation: Reservation,
    window: Window,
    latest_ms: int | None,
    index: PoolIndex,
) -> None:
    """Move a reservation, its own devices counted as free. What was pending is placed where it fits, else waits on.

    Args:
        connection: In a transaction that holds the pool's row, then the reservation's, and has placed nothing.
        at: Now.
        pool_row: Its pool.
        reservation: Pending or placed.
        window: What it asks for from now on; it does not end later, however late it begins.
        latest_ms: When it gives up being placed, or None.
        index: The pools in memory.

    Raises:
        Problem: `CONFLICT`: it is placed, and nothing fits in the new window. The caller undoes everything.
    """
    wanted = replace(
        reservation,
        start_ms=window.start_ms,
        duration_ms=window.duration_ms,
        fixed_end_ms=window.end_ms,
        latest_start_ms=latest_ms,
    )
    nodes = [member.node_id for member in reservation.members]
    snapshot = index.snapshot(connection, pool_row, at).without(reservation.id, nodes)
    planned = decide(snapshot, wanted, at, pool_row)
    over: OverQuota | None = None
    if isinstance(planned, Plan) and reservation.state is State.PENDING:
        over = over_quota(connection, reservation, planned.milli(snapshot))
    decision = planned if over is None else over
    former = reservation.window
    data = {"from": [former.start_ms, former.end_ms], "to": [window.start_ms, window.end_ms]}
    if reservation.state is State.PENDING:
        columns = {**_asked(wanted), **pending_columns(wanted, at.ms, over_quota=over is not None)}
        if not isinstance(decision, Plan):
            columns |= told(decision)[0]
        commit.record(connection, at, reservation, Fact("reservation.moved", data), None, **columns)
    if isinstance(decision, Plan):
        _place(connection, at, pool_row, wanted, decision, data)
        charge(connection, at, wanted, decision.milli(snapshot))
    elif reservation.state is not State.PENDING:
        why = "it is too late for it" if decision is None else decision.sentence
        raise Problem(Code.CONFLICT, f"{reservation.id} keeps its window; in the other one, {why}")


def _asked(wanted: Reservation) -> dict[str, object]:
    return {
        "start_ms": wanted.start_ms,
        "duration_ms": wanted.duration_ms,
        "fixed_end_ms": wanted.fixed_end_ms,
        "latest_start_ms": wanted.latest_start_ms,
    }


def _place(
    connection: Connection,
    at: Moment,
    pool_row: PoolRow,
    wanted: Reservation,
    decision: Plan,
    data: dict[str, list[int]],
) -> None:
    placed = placement(decision, wanted, at, pool_row)
    was_placed = wanted.state is State.PLACED
    if was_placed:
        ids = [member.allocation_id for member in wanted.members]
        commit.drop(connection, at, wanted.pool_id, ids, leave_gang=True)
    lost = commit.book(connection, at, pool_row, wanted, decision.members, placed.window, pool_row.version)
    if lost is not None:
        raise Problem(
            Code.CONFLICT, f"{wanted.id} keeps its window: a node of the other one has just failed; try again"
        )
    columns = {**_asked(wanted), **placed.columns}
    if was_placed:
        fact = Fact("reservation.moved", {**placed.fact.data, **data})
        commit.record(connection, at, wanted, fact, Move.MOVE, **columns)
    else:
        commit.record(connection, at, wanted, placed.fact, Move.PLACE, **columns)
