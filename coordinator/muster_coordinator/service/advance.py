"""Carry one reservation as far as its stored state and the clock allow, in one transaction.

Reports, the API and the background pass all call this; each of them may die before or after it, and the next pass
does what is left.
"""

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, RowMapping, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.advance import next_step
from muster_coordinator.core.lifecycle.model import (
    Activate,
    Check,
    End,
    Expire,
    Free,
    Move,
    Order,
    Replace,
    Requeue,
    Step,
)
from muster_coordinator.core.model import EndReason, Reservation, State
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.repair.check import Risk, due_repair, next_check_ms, risks
from muster_coordinator.core.repair.plan import Repaired, plan_repair
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service.admit import condition_of
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.waiting import pending_columns, requeue
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact, Lost
from muster_coordinator.store.documents import written_agreed
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import RESERVATION
from muster_shared.codec import dumps, encode, loads
from muster_shared.time import Window

_STEPS_MAX: Final = 12  # check, repair, check, start, order, ... a longer chain is a loop


class _Walk:
    """One reservation in one transaction, with what every step needs."""

    def __init__(self, connection: Connection, at: Moment, pool_row: PoolRow, index: PoolIndex) -> None:
        self.connection = connection
        self.at = at
        self.pool_row = pool_row
        self.index = index
        self._has_changed_pool = False

    def take(self, reservation: Reservation, row: RowMapping, step: Step) -> None:
        """Write one step."""
        self._take(reservation, row, step)
        self._has_changed_pool = True

    def _take(self, reservation: Reservation, row: RowMapping, step: Step) -> None:
        match step:
            case Expire():
                end_at_once(self.connection, self.at, reservation, EndReason.EXPIRED)
            case Requeue():
                requeue(self.connection, self.at, reservation)
            case Check(starting):
                self._check(reservation, row, starting=starting)
            case Order(allocation_ids):
                commit.order(self.connection, self.at, self.pool_row, allocation_ids)
            case Replace(allocation_ids):
                bad = {member.node_id for member in reservation.members if member.allocation_id in allocation_ids}
                self._repair(reservation, bad, Move.REPLACE)
            case Activate():
                self._activate(reservation)
            case End(reason):
                end(self.connection, self.at, reservation, reason)
            case Free():
                commit.leave(self.connection, reservation)
                fact = Fact("reservation.ended", {"reason": reservation.end_reason})
                commit.record(self.connection, self.at, reservation, fact, Move.FREE, ended_ms=self.at.ms)

    def _activate(self, reservation: Reservation) -> None:
        end_ms = reservation.window.end_ms
        fact = Fact("reservation.active", {"nodeIds": [member.node_id for member in reservation.members]})
        # A pool without budgets protects a regular reservation for its whole duration (design, section 8).
        changes = {"activated_ms": self.at.ms, "protected_until_ms": end_ms, "check_due_ms": None}
        commit.record(self.connection, self.at, reservation, fact, Move.ACTIVATE, **changes)

    def _check(self, reservation: Reservation, row: RowMapping, *, starting: bool) -> None:
        members = {member.node_id for member in reservation.members}
        now = read.snapshot(self.connection, self.pool_row, self.at.ms, members)
        policy = self.pool_row.policy
        found = risks(reservation, now, policy)
        self._mark(reservation, row, found, now)
        if reservation.state is State.PLACED and self._heal(reservation, found):
            return
        if starting:
            fact = Fact("reservation.binding", {"nodeIds": [member.node_id for member in reservation.members]})
            changes = {"binding_since_ms": self.at.ms, "check_due_ms": None}
            commit.record(self.connection, self.at, reservation, fact, Move.START, **changes)
            return
        due_ms = next_check_ms(reservation, found, self.at.ms, policy)
        due = update(RESERVATION).where(RESERVATION.c.id == reservation.id).values(check_due_ms=due_ms)
        self.connection.execute(due)

    def _mark(self, reservation: Reservation, row: RowMapping, found: Collection[Risk], now: Snapshot) -> None:
        names = {risk.node_id: now.views[risk.node_id].node.name for risk in found if risk.node_id in now.views}
        reasons = sorted(f"{names.get(risk.node_id, risk.node_id)}: {risk.sentence}" for risk in found)
        if reasons == loads(row["risks"]):
            return
        is_active = reservation.state is State.ACTIVE
        bad, good = (
            ("reservation.degraded", "reservation.recovered")
            if is_active
            else (
                "reservation.at_risk",
                "reservation.risk_cleared",
            )
        )
        fact = Fact(bad if reasons else good, {"risks": reasons})
        commit.record(self.connection, self.at, reservation, fact, risks=dumps(reasons).decode())

    def _heal(self, reservation: Reservation, found: Collection[Risk]) -> bool:
        """Move what is due; return whether the booking has changed. What only maintenance wants away may stay."""
        must = due_repair(reservation, found, self.at.ms, self.pool_row.policy)
        wanted = must | {risk.node_id for risk in found if risk.is_for_maintenance}
        if wanted != must and self._repair(reservation, wanted, Move.REPAIR, or_stay=True):
            return True
        return bool(must) and self._repair(reservation, must, Move.REPAIR)

    def _repair(self, reservation: Reservation, bad: Collection[str], move: Move, *, or_stay: bool = False) -> bool:
        """Swap the bad members, or the whole gang, or give the placement up: one transaction, the pool locked.

        With `or_stay`, where nothing else fits everything stays as it is, and the answer is False.
        """
        window = _rest(reservation, self.at.ms)
        policy = self.pool_row.policy
        excluded = frozenset(bad)
        pool = self._pool()
        refusal = Refusal(reservation.size, reservation.grouping.required, 0, (), reservation.size)
        for _ in range(policy.max_attempts):
            answer = plan_repair(reservation, excluded, pool, window, policy, seed=self.at.new_seed())
            if isinstance(answer, Refusal):
                refusal = answer
                break
            lost = self._swap(reservation, answer, move, bad)
            if lost is None:
                return True
            excluded |= lost.node_ids
        if or_stay:
            return False
        self._give_up(reservation, refusal)
        return True

    def _pool(self) -> Snapshot:
        # The index must not learn what this transaction has changed and may still undo.
        if self._has_changed_pool:
            return read.snapshot(self.connection, self.pool_row, self.at.ms)
        return self.index.snapshot(self.connection, self.pool_row, self.at)

    def _swap(self, reservation: Reservation, answer: Repaired, move: Move, bad: Collection[str]) -> Lost | None:
        kept = {member.allocation_id for member in answer.kept}
        leaving = [member for member in reservation.members if member.allocation_id not in kept]
        window = _rest(reservation, self.at.ms)
        savepoint = self.connection.begin_nested()
        ids = [member.allocation_id for member in leaving]
        commit.drop(self.connection, self.at, reservation.pool_id, ids, leave_gang=True)
        version = self.pool_row.version
        lost = commit.book(self.connection, self.at, self.pool_row, reservation, answer.added, window, version)
        if lost is not None:
            savepoint.rollback()
            return lost
        savepoint.commit()
        data: dict[str, object] = {
            "from": sorted(member.node_id for member in leaving),
            "nodeIds": sorted([member.node_id for member in answer.kept] + [new.node_id for new in answer.added]),
            "because": sorted(bad),
            "topology": dict(answer.agreed),
            "seed": answer.seed,
        }
        changes: dict[str, object] = {
            "generation": reservation.generation + 1,
            "agreed": written_agreed(answer.agreed),
            "seed": answer.seed,
            "risks": "[]",
            "check_due_ms": max(self.at.ms, reservation.start_ms - self.pool_row.policy.repair_lead_ms),
        }
        if move is Move.REPLACE:
            # New members get the full time to bind. Without it, two nodes that never let go change places for ever.
            changes["binding_since_ms"] = self.at.ms
        commit.record(self.connection, self.at, reservation, Fact("reservation.repaired", data), move, **changes)
        return None

    def _give_up(self, reservation: Reservation, refusal: Refusal) -> None:
        commit.drop(self.connection, self.at, reservation.pool_id, _ids(reservation), leave_gang=True)
        condition = condition_of(refusal, repairing=True)
        changes = {
            "condition": encode(condition).decode(),
            "repairing": True,
            "agreed": "[]",
            "risks": "[]",
            "binding_since_ms": None,
            **pending_columns(reservation, self.at.ms),
        }
        data = {"reason": condition.reason, "message": condition.message}
        fact = Fact("reservation.repair_failed", data)
        commit.record(self.connection, self.at, reservation, fact, Move.UNPLACE, **changes)


def advance(connection: Connection, at: Moment, reservation_id: str, index: PoolIndex) -> bool:
    """Take every step that is due for one reservation, and return whether there was any.

    Args:
        connection: In a transaction of its own.
        at: Now.
        reservation_id: Of any state.
        index: The pools in memory, for repairs.
    """
    pool_id = connection.execute(select(RESERVATION.c.pool_id).where(RESERVATION.c.id == reservation_id)).scalar()
    if pool_id is None:
        return False
    pool_row = read.pool(connection, pool_id, lock=True)
    assert pool_row is not None, "a reservation's pool exists: the foreign key says so"
    walk = _Walk(connection, at, pool_row, index)
    for steps in range(_STEPS_MAX):
        found = read.reservation(connection, reservation_id, lock=True)
        assert found is not None, "reservations are never deleted"
        reservation, row = found
        step = next_step(reservation, at.ms, pool_row.policy, row["check_due_ms"], pool_row.epoch_since_ms)
        if step is None:
            return steps > 0
        walk.take(reservation, row, step)
    raise RuntimeError(f"{reservation_id} does not come to rest: a bug in the lifecycle")


def end_at_once(connection: Connection, at: Moment, reservation: Reservation, reason: EndReason) -> None:
    """End a reservation that has not begun: nothing of it was handed over."""
    commit.drop(connection, at, reservation.pool_id, _ids(reservation), leave_gang=True)
    fact = Fact("reservation.ended", {"reason": reason})
    changes = {"end_reason": reason, "ended_ms": at.ms, "condition": None, "wait_key": None, "risks": "[]"}
    commit.record(connection, at, reservation, fact, Move.END, **changes)


def end(connection: Connection, at: Moment, reservation: Reservation, reason: EndReason) -> None:
    """Tell every member of a binding or active gang to let go. The atoms are free once all have confirmed it."""
    commit.drop(connection, at, reservation.pool_id, _ids(reservation), leave_gang=False)
    fact = Fact("reservation.ending", {"reason": reason})
    commit.record(connection, at, reservation, fact, Move.END, end_reason=reason, check_due_ms=None, risks="[]")


def _rest(reservation: Reservation, now_ms: int) -> Window:
    return Window(max(reservation.start_ms, now_ms), reservation.window.end_ms)


def _ids(reservation: Reservation) -> list[str]:
    return [member.allocation_id for member in reservation.members]
