"""What an owner does to a reservation: cancel and release. All members or nothing."""

from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import EndReason, Reservation, State
from muster_coordinator.service.advance import advance
from muster_coordinator.service.changes.ends import end, end_at_once
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.store import read
from muster_coordinator.store.read import PoolRow
from muster_shared.errors import Code, Problem


def cancel(connection: Connection, at: Moment, reservation_id: str, index: PoolIndex) -> None:
    """End a reservation that has not begun, or break one off. Cancelling again changes nothing.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` when it has ended for another reason.
    """
    reservation = held(connection, reservation_id).reservation
    match reservation.state:
        case State.PENDING | State.PLACED:
            end_at_once(connection, at, reservation, EndReason.CANCELLED)
        case State.BINDING | State.ACTIVE:
            end(connection, at, reservation, EndReason.CANCELLED)
            advance(connection, at, reservation_id, index)
        case State.ENDING:
            pass  # it is on its way out; the first reason stands
        case State.ENDED if reservation.end_reason is not EndReason.CANCELLED:
            raise Problem(Code.CONFLICT, f"{reservation_id} has already ended ({reservation.end_reason})")
        case State.ENDED:
            pass


def release(connection: Connection, at: Moment, reservation_id: str, index: PoolIndex) -> None:
    """Give back what is bound before the window ends. Releasing again changes nothing.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` when nothing is bound yet, or it ended for another reason.
    """
    reservation = held(connection, reservation_id).reservation
    match reservation.state:
        case State.PENDING | State.PLACED:
            raise Problem(
                Code.CONFLICT, f"{reservation_id} is {reservation.state} and holds no devices: cancel it instead"
            )
        case State.BINDING | State.ACTIVE:
            end(connection, at, reservation, EndReason.RELEASED)
            advance(connection, at, reservation_id, index)
        case State.ENDED if reservation.end_reason is not EndReason.RELEASED:
            raise Problem(Code.CONFLICT, f"{reservation_id} has already ended ({reservation.end_reason})")
        case State.ENDING | State.ENDED:
            pass


@dataclass(frozen=True, slots=True)
class Held:
    """A reservation whose pool and row nobody else can change before the transaction ends."""

    pool_row: PoolRow
    reservation: Reservation
    row: RowMapping


def held(connection: Connection, reservation_id: str, *, lock: bool = True) -> Held:
    """Read a reservation to change it; without `lock`, only to look at it.

    Raises:
        Problem: `NOT_FOUND`.
    """
    found = read.reservation(connection, reservation_id)
    if found is None:
        raise Problem(Code.NOT_FOUND, f"there is no reservation {reservation_id!r}; `muster list` shows the ids")
    pool_row = read.known_pool(connection, found[0].pool_id, lock=lock)
    if lock:
        found = read.reservation(connection, reservation_id, lock=True)
        assert found is not None, "reservations are never deleted"
    return Held(pool_row, *found)
