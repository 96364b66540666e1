"""How a reservation ends: at once where nothing was handed over, else when every node has let go."""

from sqlalchemy import Connection

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.model import Move
from muster_coordinator.core.model import EndReason, Reservation
from muster_coordinator.service.accounts.charge import give_back
from muster_coordinator.store import commit
from muster_coordinator.store.commit import Fact


def end_at_once(connection: Connection, at: Moment, reservation: Reservation, reason: EndReason) -> None:
    """End a reservation that has not begun: nothing of it was handed over."""
    commit.drop(connection, at, reservation.pool_id, _ids(reservation), leave_gang=True)
    give_back(connection, at, reservation.id)
    fact = Fact("reservation.ended", {"reason": reason})
    changes = {"end_reason": reason, "ended_ms": at.ms, "condition": None, "wait_key": None, "risks": "[]"}
    commit.record(connection, at, reservation, fact, Move.END, **changes)


def end(connection: Connection, at: Moment, reservation: Reservation, reason: EndReason) -> None:
    """Tell every member of a binding or active gang to let go. The atoms are free once all have confirmed it."""
    commit.drop(connection, at, reservation.pool_id, _ids(reservation), leave_gang=False)
    fact = Fact("reservation.ending", {"reason": reason})
    commit.record(connection, at, reservation, fact, Move.END, end_reason=reason, check_due_ms=None, risks="[]")


def free(connection: Connection, at: Moment, reservation: Reservation) -> None:
    """End a gang of which every member has let go."""
    commit.leave(connection, reservation)
    give_back(connection, at, reservation.id)
    fact = Fact("reservation.ended", {"reason": reservation.end_reason})
    commit.record(connection, at, reservation, fact, Move.FREE, ended_ms=at.ms)


def _ids(reservation: Reservation) -> list[str]:
    return [member.allocation_id for member in reservation.members]
