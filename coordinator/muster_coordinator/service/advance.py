"""Carry one reservation as far as its stored state and the clock allow, in one transaction.

Reports, the API and the background pass all call this; each of them may die before or after it, and the next pass
does what is left.
"""

from typing import Final

from sqlalchemy import Connection, RowMapping, select

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
from muster_coordinator.core.model import EndReason, Reservation
from muster_coordinator.service.changes.ends import end, end_at_once, free
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.repairs.repair import Repairs, Taken
from muster_coordinator.service.waiting import requeue
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import RESERVATION

_STEPS_MAX: Final = 12  # check, repair, check, start, order, ... a longer chain is a loop


class _Walk:
    """One reservation in one transaction, with what every step needs."""

    def __init__(self, connection: Connection, at: Moment, pool_row: PoolRow, index: PoolIndex) -> None:
        self.connection = connection
        self.at = at
        self.pool_row = pool_row
        self.repairs = Repairs(connection, at, pool_row, index)

    def take(self, reservation: Reservation, row: RowMapping, step: Step) -> Taken:
        """Write one step."""
        match step:
            case Check(starting):
                return self.repairs.check(reservation, row, starting=starting)
            case Replace(allocation_ids):
                return self.repairs.replace(reservation, row, allocation_ids)
            case _:
                self._take(reservation, step)
                self.repairs.has_changed_pool = True
                return "goes on"

    def _take(self, reservation: Reservation, step: Expire | Requeue | Order | Activate | End | Free) -> None:
        match step:
            case Expire():
                end_at_once(self.connection, self.at, reservation, EndReason.EXPIRED)
            case Requeue():
                requeue(self.connection, self.at, reservation)
            case Order(allocation_ids):
                commit.order(self.connection, self.at, self.pool_row, allocation_ids)
            case Activate():
                self._activate(reservation)
            case End(reason):
                end(self.connection, self.at, reservation, reason)
            case Free():
                free(self.connection, self.at, reservation)

    def _activate(self, reservation: Reservation) -> None:
        end_ms = reservation.window.end_ms
        fact = Fact("reservation.active", {"nodeIds": [member.node_id for member in reservation.members]})
        # A pool without budgets protects a regular reservation for its whole duration (design, section 8).
        changes = {"activated_ms": self.at.ms, "protected_until_ms": end_ms, "check_due_ms": None}
        if reservation.activated_ms is not None:
            # It was interrupted: what was wrong with its other members is looked at now.
            changes |= {"activated_ms": reservation.activated_ms, "check_due_ms": self.at.ms}
        commit.record(self.connection, self.at, reservation, fact, Move.ACTIVATE, **changes)


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
        taken = "held" if step is None else walk.take(reservation, row, step)
        if taken != "goes on":
            return steps > 0 or taken == "at rest"
    raise RuntimeError(f"{reservation_id} does not come to rest: a bug in the lifecycle")
