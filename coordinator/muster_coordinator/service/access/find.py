"""Looks up what a call is about, as policies see it."""

from sqlalchemy import Connection, Table, select

from muster_coordinator.service.access.actions import Subject
from muster_coordinator.service.access.caller import Resource
from muster_coordinator.store.tables import NODE, POOL, RESERVATION, SERIES
from muster_shared.errors import Code, Problem


def found(connection: Connection, subject: Subject, key: str) -> Resource | None:
    """Return one thing by its id, nodes and pools also by name; None where it is not there."""
    match subject:
        case "Reservation":
            return _owned(connection, subject, RESERVATION, key)
        case "Series":
            return _owned(connection, subject, SERIES, key)
        case "Node":
            columns = (NODE.c.id, NODE.c.name, POOL.c.name.label("pool"))
            wanted = select(*columns).join(POOL, POOL.c.id == NODE.c.pool_id)
            named = (NODE.c.id == key) | (NODE.c.name == key)
            row = connection.execute(wanted.where(named, NODE.c.removed_ms.is_(None))).first()
            return None if row is None else Resource("Node", row.id, row.pool, name=row.name)
        case "Pool":
            name = connection.execute(select(POOL.c.name).where((POOL.c.id == key) | (POOL.c.name == key))).scalar()
            return None if name is None else Resource("Pool", name, name=name)
        case "Muster":
            return Resource()


def _owned(connection: Connection, kind: Subject, table: Table, key: str) -> Resource | None:
    columns = (table.c.tenant_id, POOL.c.name.label("pool"))
    wanted = select(*columns).join(POOL, POOL.c.id == table.c.pool_id).where(table.c.id == key)
    row = connection.execute(wanted).first()
    return None if row is None else Resource(kind, key, row.pool, row.tenant_id)


def missing(subject: Subject, key: str) -> Problem:
    """Return the refusal of a reservation or series that is not there, or is nobody's business."""
    if subject == "Series":
        return Problem(Code.NOT_FOUND, f"there is no series {key!r}; `muster series` lists yours")
    return Problem(Code.NOT_FOUND, f"there is no reservation {key!r}; `muster list` shows yours")
