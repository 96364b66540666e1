"""Published events, in the order of the stream."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, RowMapping, func, or_, select

from muster_coordinator.core.event_types import type_fault
from muster_coordinator.service.bodies import EventView
from muster_coordinator.service.draft import pool_missing
from muster_coordinator.store import read
from muster_coordinator.store.tables import EVENT, RESERVATION, SERIES
from muster_shared.codec import loads
from muster_shared.errors import invalid


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events somebody wants; what is None or empty does not matter."""

    pool_id: str | None = None
    subject: str | None = None  # id of a reservation, node, pool or receiver
    types: Sequence[str] = ()  # whole types, or prefixes that end in a dot
    tenant_id: str | None = None  # whose reservations and series


@dataclass(frozen=True, slots=True)
class Batch:
    """Some events, and how far the log has been read for them."""

    items: list[EventView]
    seen: int  # the next look begins after it, however few of the events were wanted


def filtered(
    connection: Connection, pool: str | None, subject: str | None, types: Sequence[str], tenant_id: str | None = None
) -> Filter:
    """Read what somebody asks for.

    Raises:
        Problem: `INVALID_INPUT` for what is no event type; `NOT_FOUND` for a pool that there is not.
    """
    for fault in filter(None, map(type_fault, types)):
        raise invalid("type", fault)
    if pool is None:
        return Filter(None, subject, types, tenant_id)
    row = read.pool(connection, pool)
    if row is None:
        raise pool_missing(pool)
    return Filter(row.id, subject, types, tenant_id)


def events(connection: Connection, wanted: Filter, *, after: int, limit: int) -> Batch:
    """Return the next events after a sequence number, at most `limit`, in order."""
    # First how far the log goes: what is published meanwhile is for the next look.
    newest: int = connection.execute(select(func.max(EVENT.c.seq))).scalar() or 0
    asked = select(EVENT).where(EVENT.c.seq > after, EVENT.c.seq <= newest, *conditions(wanted))
    rows = connection.execute(asked.order_by(EVENT.c.seq).limit(limit)).mappings()
    items = [event_view(row) for row in rows]
    seen = items[-1].seq if len(items) == limit else max(newest, after)
    return Batch(items, seen)


def event_view(row: RowMapping) -> EventView:
    """Show one row of the log."""
    return EventView(
        id=row["id"],
        seq=row["seq"],
        type=row["type"],
        at=row["at_ms"],
        pool_id=row["pool_id"],
        subject=row["subject"],
        version=row["version"],
        data=loads(row["data"]),
    )


def conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    """Return what a row of the log must satisfy to be wanted."""
    found: list[ColumnElement[bool]] = []
    if wanted.pool_id is not None:
        found.append(EVENT.c.pool_id == wanted.pool_id)
    if wanted.subject is not None:
        found.append(EVENT.c.subject == wanted.subject)
    if wanted.tenant_id is not None:
        mine = (select(table.c.id).where(table.c.tenant_id == wanted.tenant_id) for table in (RESERVATION, SERIES))
        found.append(or_(*(EVENT.c.subject.in_(ids) for ids in mine)))
    if wanted.types:
        whole = [one for one in wanted.types if not one.endswith(".")]
        alike = (EVENT.c.type.startswith(one, autoescape=True) for one in wanted.types if one.endswith("."))
        found.append(or_(EVENT.c.type.in_(whole), *alike))
    return found
