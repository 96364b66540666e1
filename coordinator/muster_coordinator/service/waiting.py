"""Pending work by what it waits for: those that would be refused for the same cause are planned once."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.advance import pending_until_ms
from muster_coordinator.core.model import Reservation, State
from muster_coordinator.service.bodies import Condition
from muster_coordinator.store.documents import written
from muster_coordinator.store.tables import RESERVATION, WAIT
from muster_shared.codec import dumps, encode

_KEY_DIGITS = 20  # of a SHA-256: 80 bits, so that no two shapes of a pool ever share one


@dataclass(frozen=True, slots=True)
class Line:
    """Pending reservations of one shape and window, oldest first."""

    key: str
    waiting: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Head:
    """A reservation at the head of a line, and when it was made."""

    id: str
    created_ms: int


def wait_key(reservation: Reservation, now_ms: int, *, over_quota: bool = False) -> str:
    """Return what a pending reservation waits for: shape, gang and window, whoever asks.

    The key holds all that decides whether it fits, so that one refusal answers for every reservation of the same key.
    Whoever is over their quota waits beside the others, who must not wait for that.
    """
    window = (
        ["at", reservation.start_ms, reservation.window.end_ms]
        if reservation.start_ms > now_ms
        else ["now", reservation.fixed_end_ms, reservation.duration_ms if reservation.fixed_end_ms is None else None]
    )
    parts = [written(reservation.shape), reservation.size, written(reservation.grouping), window]
    if over_quota:
        parts.append(reservation.tenant_id)
    return hashlib.sha256(dumps(parts)).hexdigest()[:_KEY_DIGITS]


def pending_columns(reservation: Reservation, now_ms: int, *, over_quota: bool = False) -> dict[str, object]:
    """Return the columns by which a pending reservation is found again: in its line, and when its time has come."""
    return {
        "wait_key": wait_key(reservation, now_ms, over_quota=over_quota),
        "check_due_ms": pending_until_ms(reservation, now_ms),
    }


def requeue(connection: Connection, at: Moment, reservation: Reservation) -> None:
    """Move a pending reservation whose asked start has passed to the line of those that begin at once."""
    mine = update(RESERVATION).where(RESERVATION.c.id == reservation.id)
    connection.execute(mine.values(**pending_columns(reservation, at.ms)))


def lines(connection: Connection, pool_id: str) -> list[Line]:
    """Return the lines of a pool, the one with the oldest reservation first."""
    oldest_ms = func.min(RESERVATION.c.created_ms)
    rows = connection.execute(
        select(RESERVATION.c.wait_key, func.count(), oldest_ms)
        .where(RESERVATION.c.pool_id == pool_id, RESERVATION.c.wait_key.is_not(None))
        .group_by(RESERVATION.c.wait_key)
        .order_by(oldest_ms, RESERVATION.c.wait_key)
    )
    return [Line(key, waiting, first_ms) for key, waiting, first_ms in rows]


def heads(connection: Connection, pool_id: str, key: str, limit: int) -> list[Head]:
    """Return the first reservations of a line, oldest first."""
    columns = (RESERVATION.c.created_ms, RESERVATION.c.id)
    mine = select(*columns).where(RESERVATION.c.pool_id == pool_id, RESERVATION.c.wait_key == key)
    return [Head(id_, made_ms) for made_ms, id_ in connection.execute(mine.order_by(*columns).limit(limit))]


def conditions(connection: Connection, pool_ids: Collection[str]) -> dict[tuple[str, str], str]:
    """Return what is known of the lines of some pools, by pool and key."""
    if not pool_ids:
        return {}
    rows = connection.execute(select(WAIT).where(WAIT.c.pool_id.in_(pool_ids)))
    return {(row.pool_id, row.key): row.condition for row in rows}


def tell(connection: Connection, pool_id: str, refused: Mapping[str, Condition]) -> None:
    """Keep what each line was told last, and forget lines in which nobody waits any more.

    Args:
        connection: In a transaction.
        pool_id: Of the lines.
        refused: By key, what the planner said; a refusal of the line replaces what a single one had been told.
    """
    known = conditions(connection, [pool_id])
    for key, condition in sorted(refused.items()):
        text = encode(condition).decode()
        if known.get((pool_id, key)) == text:
            continue
        connection.execute(delete(WAIT).where(WAIT.c.pool_id == pool_id, WAIT.c.key == key))
        connection.execute(insert(WAIT).values(pool_id=pool_id, key=key, condition=text))
        mine = (RESERVATION.c.pool_id == pool_id) & (RESERVATION.c.wait_key == key)
        own = update(RESERVATION).where(
            mine, RESERVATION.c.condition.is_not(None), RESERVATION.c.state == State.PENDING
        )
        connection.execute(own.values(condition=None))
    alive = select(RESERVATION.c.wait_key).where(RESERVATION.c.pool_id == pool_id, RESERVATION.c.wait_key.is_not(None))
    connection.execute(delete(WAIT).where(WAIT.c.pool_id == pool_id, WAIT.c.key.not_in(alive)))


def are_news(connection: Connection, pool_id: str, refused: Mapping[str, Condition]) -> bool:
    """Tell whether `tell` would write anything worth a transaction."""
    known = conditions(connection, [pool_id])
    return any(known.get((pool_id, key)) != encode(condition).decode() for key, condition in refused.items())
