"""Usage records: one an allocation, written in the transaction that learns that its node holds nothing of it any more.

A record begins where its gang was active and its node had bound, and ends with the confirmed release. It is never
changed: what is billed for a past time stays as it was billed. What was bound in a gang that was not active by then
has a record of no length, so that one that is missing can be told from one that was nothing.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    RowMapping,
    ScalarSelect,
    and_,
    case,
    cast,
    func,
    insert,
    select,
)

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState
from muster_coordinator.store.ledger_tables import USAGE
from muster_coordinator.store.tables import ALLOCATION, ATOM, BOOKING, RESERVATION
from muster_shared.devices import WORD_BITS

OVER: Final = frozenset({BindState.RELEASED, BindState.FENCED, BindState.LOST})
"""Nothing of an allocation is exposed any more."""


def close(connection: Connection, at: Moment, allocation_ids: Collection[str]) -> None:
    """Write the records of allocations that have just ended; what was never bound leaves none."""
    if not allocation_ids:
        return
    rows = [
        {**record(row), "start_ms": min(at.ms, row["start_ms"] or at.ms), "end_ms": at.ms}
        for row in bound(connection, ALLOCATION.c.id.in_(sorted(allocation_ids)))
    ]
    if rows:
        connection.execute(insert(USAGE), rows)


def bound(connection: Connection, *chosen: ColumnElement[bool]) -> Sequence[RowMapping]:
    """Return allocations that were bound, with what a record says of each but its end.

    `start_ms` is None where their gang has not been active.
    """
    return connection.execute(_BOUND.where(*chosen).order_by(ALLOCATION.c.id)).mappings().all()


def record(row: RowMapping) -> dict[str, Any]:
    """Return what a record says of an allocation, but for its end."""
    return {name: row[name] for name in USAGE.c.keys() if name != "end_ms"}  # noqa: SIM118 - a collection of columns


def _milli() -> ScalarSelect[Any]:
    """Milli-GPU of an allocation: its atoms are the bits of its booking's masks."""
    bit = BOOKING.c.mask.bitwise_rshift(ATOM.c.number % WORD_BITS).bitwise_and(1)
    booked = and_(ATOM.c.node_id == BOOKING.c.node_id, ATOM.c.number // WORD_BITS == BOOKING.c.word)
    # PostgreSQL would answer a sum of such integers as a decimal number.
    total = cast(func.coalesce(func.sum(ATOM.c.milli * bit), 0), BigInteger)
    amount = select(total).select_from(BOOKING).join(ATOM, booked)
    return amount.where(BOOKING.c.allocation_id == ALLOCATION.c.id).correlate(ALLOCATION).scalar_subquery()


_START: Final = case(
    (ALLOCATION.c.bound_ms > RESERVATION.c.activated_ms, ALLOCATION.c.bound_ms), else_=RESERVATION.c.activated_ms
)
_BOUND: Final = (
    select(
        ALLOCATION.c.id.label("allocation_id"),
        ALLOCATION.c.reservation_id,
        ALLOCATION.c.node_id,
        RESERVATION.c.tenant_id,
        RESERVATION.c.pool_id,
        RESERVATION.c.budget,
        case((RESERVATION.c.spot, "spot"), else_="regular").label("kind"),
        _milli().label("milli"),
        _START.label("start_ms"),
    )
    .join(RESERVATION, RESERVATION.c.id == ALLOCATION.c.reservation_id)
    .where(ALLOCATION.c.bound_ms.is_not(None))
)
