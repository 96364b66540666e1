"""Carry reservations as far as their stored state and the clock allow: one, or a batch of a pool, in one transaction.

Reports, the API and the background pass all call this; each of them may die before or after it, and the next pass
does what is left.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
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
from muster_coordinator.core.model import EndReason, Reservation, State
from muster_coordinator.service.changes.ends import end, end_at_once, free
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.repairs.repair import Repairs, Taken
from muster_coordinator.service.waiting import requeue
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow, Read
from muster_coordinator.store.tables import RESERVATION

_BATCH_MAX: Final = 32
"""Reservations in one transaction: they share a look at the pool and a commit, and nobody waits for long."""

_STEPS_MAX: Final = 12  # check, repair, check, start, order, ... a longer chain is a loop


class _Walk:
    """The reservations of one transaction, with what every step needs."""

    def __init__(self, connection: Connection, at: Moment, pool_row: PoolRow, index: PoolIndex) -> None:
        self.connection = connection
        self.at = at
        self.pool_row = pool_row
        self.repairs = Repairs(connection, at, pool_row, index)
        self.touched: set[str] = set()  # nodes on which somebody was told something, or is no longer

    def finish(self, read_before: Read) -> bool:
        """Take every step that is due for one reservation, and return whether there was any."""
        reservation, row = read_before
        if self.touched & {member.node_id for member in reservation.members}:
            reservation, row = self._read(reservation.id)
        policy, since_ms = self.pool_row.policy, self.pool_row.epoch_since_ms
        for steps in range(_STEPS_MAX):
            step = next_step(reservation, self.at.ms, policy, row["check_due_ms"], since_ms)
            taken = "held" if step is None else self.take(reservation, row, step)
            if taken != "held" and reservation.state is not State.PLACED:
                self.touched |= {member.node_id for member in reservation.members}
            if taken != "goes on":
                return steps > 0 or taken == "at rest"
            reservation, row = self._read(reservation.id)
        raise RuntimeError(f"{reservation.id} does not come to rest: a bug in the lifecycle")

    def _read(self, reservation_id: str) -> Read:
        found = read.reservation(self.connection, reservation_id, lock=True)
        assert found is not None, "reservations are never deleted"
        return found

    def take(self, reservation: Reservation, row: RowMapping, step: Step) -> Taken:
        """Write one step."""
        match step:
            case Check(starting):
                return self.repairs.check(reservation, row, starting=starting)
            case Replace(allocation_ids):
                return self.repairs.replace(reservation, row, allocation_ids)
            case _:
                self._take(reservation, step)
                if isinstance(step, Order):
                    return "at rest"  # until the nodes answer
                if not isinstance(step, Activate):
                    self.repairs.has_changed(reservation)
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
    return advance_batch(connection, at, (reservation_id,), index)


def batches(connection: Connection, reservation_ids: Iterable[str]) -> list[tuple[str, ...]]:
    """Sort reservations into batches for `advance_batch`; what is unknown is left out.

    Args:
        connection: To read with.
        reservation_ids: In the order in which they are looked at: those of one pool keep it.
    """
    wanted = tuple(dict.fromkeys(reservation_ids))
    rows = connection.execute(select(RESERVATION.c.id, RESERVATION.c.pool_id).where(RESERVATION.c.id.in_(wanted)))
    pool_of = {row.id: row.pool_id for row in rows}
    by_pool: defaultdict[str, list[str]] = defaultdict(list)
    for reservation_id in wanted:
        if reservation_id in pool_of:
            by_pool[pool_of[reservation_id]].append(reservation_id)
    return [batch for ids in by_pool.values() for batch in cut(ids)]


def cut(reservation_ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Cut reservations of one pool into batches, in their order."""
    return [tuple(reservation_ids[at : at + _BATCH_MAX]) for at in range(0, len(reservation_ids), _BATCH_MAX)]


def advance_batch(connection: Connection, at: Moment, reservation_ids: Sequence[str], index: PoolIndex) -> bool:
    """Carry reservations of one pool on, one after the other, and return whether anything was due.

    Each is decided on what those before it have changed: moves count for the storm brake at once.

    Args:
        connection: In a transaction of its own.
        at: Now.
        reservation_ids: Of one pool, any state, in the order in which they are looked at; the first one must exist.
        index: The pools in memory, for repairs.
    """
    of_first = select(RESERVATION.c.pool_id).where(RESERVATION.c.id == reservation_ids[0])
    pool_id = connection.execute(of_first).scalar()
    if pool_id is None:
        return False
    walk = _Walk(connection, at, read.known_pool(connection, pool_id, lock=True), index)
    found = read.reservations(connection, reservation_ids, lock=True)
    if len(found) > 1:
        walk.repairs.pool()  # before anything is changed: what follows is kept up in memory
    moved = False
    for reservation_id in reservation_ids:
        moved |= walk.finish(found[reservation_id])
    return moved
