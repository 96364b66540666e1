"""From what an operator wrote to a maintenance window: times resolved, nodes found, limits and overlaps checked."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, RowMapping, or_, select

from muster_coordinator.clock import Moment
from muster_coordinator.service.admit import DEFAULT_POOL
from muster_coordinator.service.draft import pool_missing
from muster_coordinator.service.maintenance.bodies import MaintenanceRequest
from muster_coordinator.service.when import instant, length
from muster_coordinator.store import maintenance, read
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import NODE
from muster_shared.errors import Code, Problem, invalid
from muster_shared.time import MS_MAX, Window, format_duration, format_instant

_SHOWN: Final = 5  # nodes that a refusal names


@dataclass(frozen=True, slots=True)
class MaintenanceDraft:
    """A maintenance window that may be declared."""

    pool_row: PoolRow  # locked
    node_ids: list[str]  # sorted, at least one
    window: Window
    reason: str


def drafted(connection: Connection, at: Moment, request: MaintenanceRequest, *, lock: bool = True) -> MaintenanceDraft:
    """Resolve a request on the coordinator's clock; with `lock`, hold its pool until the transaction ends.

    Raises:
        Problem: As `service.maintenance.create`.
    """
    if bool(request.nodes) == bool(request.node_selector):
        raise invalid("nodes", "name nodes, or give a node selector: exactly one of them")
    pool_ids = sorted({row["pool_id"] for row in _found(connection, request)})
    if len(pool_ids) > 1:
        raise invalid("nodes", f"in more than one pool ({', '.join(pool_ids)}): declare one window for each")
    pool_row = read.known_pool(connection, pool_ids[0], lock=lock)
    rows = _found(connection, request)  # as they are now that nobody changes them
    window = _window(request, at.ms, pool_row)
    names = {row["id"]: row["name"] for row in rows}
    for node_id, others in sorted(maintenance.declared(connection, list(names)).items()):
        for other in others:
            if other.window.overlaps(window):
                raise Problem(
                    Code.CONFLICT,
                    f"{names[node_id]!r} is in maintenance {other.id} from {format_instant(other.window.start_ms)} to "
                    f"{format_instant(other.window.end_ms)}: leave it out, choose another time, or cancel that first",
                )
    return MaintenanceDraft(pool_row, sorted(names), window, request.reason)


def _found(connection: Connection, request: MaintenanceRequest) -> list[RowMapping]:
    return _named(connection, request.nodes) if request.nodes else _selected(connection, request)


def _named(connection: Connection, names: list[str]) -> list[RowMapping]:
    wanted = select(NODE).where(or_(NODE.c.id.in_(names), NODE.c.name.in_(names)), NODE.c.removed_ms.is_(None))
    rows = list(connection.execute(wanted).mappings())
    known = {row["id"] for row in rows} | {row["name"] for row in rows}
    missing = [repr(name) for name in names if name not in known]
    if missing:
        more = " and others" if len(missing) > _SHOWN else ""
        shown = f"{', '.join(missing[:_SHOWN])}{more}"
        raise Problem(Code.NOT_FOUND, f"there is no node {shown}; `muster nodes` lists them")
    return rows


def _selected(connection: Connection, request: MaintenanceRequest) -> list[RowMapping]:
    name = request.pool_id or DEFAULT_POOL
    pool_row = read.pool(connection, name)
    if pool_row is None:
        raise pool_missing(name)
    in_pool = select(NODE).where(NODE.c.pool_id == pool_row.id, NODE.c.removed_ms.is_(None))
    rows = [
        row
        for row in connection.execute(in_pool).mappings()
        if request.node_selector.items() <= read.node_labels(row).items()
    ]
    if not rows:
        asked = ", ".join(f"{key}={value}" for key, value in sorted(request.node_selector.items()))
        raise invalid("nodeSelector", f"no node of the pool {pool_row.name!r} has {asked}")
    return rows


def _window(request: MaintenanceRequest, now_ms: int, pool_row: PoolRow) -> Window:
    start_ms = now_ms if request.start is None else instant("start", request.start, now_ms)
    if start_ms < now_ms:
        raise invalid("start", f"{format_instant(start_ms)} has passed; leave it out to begin now")
    if (request.duration is None) == (request.end is None):
        raise invalid("duration", "give either a duration or an end")
    end_ms = instant("end", request.end, now_ms)
    if end_ms is None:
        end_ms = start_ms + length("duration", request.duration or "")
    if end_ms <= start_ms:
        raise invalid("end", f"not after the start ({format_instant(start_ms)})")
    if start_ms > now_ms + pool_row.policy.look_ahead_ms or end_ms > MS_MAX:
        raise invalid("start", f"further ahead than the pool allows ({format_duration(pool_row.policy.look_ahead_ms)})")
    if end_ms - start_ms > pool_row.policy.max_duration_ms:
        most = format_duration(pool_row.policy.max_duration_ms)
        raise invalid("duration", f"longer than the pool allows ({most}); drain a node that is gone for longer")
    return Window(start_ms, end_ms)
