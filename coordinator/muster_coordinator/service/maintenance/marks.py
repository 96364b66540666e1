"""Which maintenance the nodes of a list are in, or see next."""

from collections.abc import Collection

from sqlalchemy import Connection, select

from muster_coordinator.service.bodies import MaintenanceMark
from muster_coordinator.store.tables import MAINTENANCE, MAINTENANCE_NODE


def marks(connection: Connection, node_ids: Collection[str]) -> dict[str, MaintenanceMark]:
    """Return the first maintenance of each node that is not over."""
    ahead = (
        select(MAINTENANCE_NODE.c.node_id, MAINTENANCE)
        .join(MAINTENANCE, MAINTENANCE.c.id == MAINTENANCE_NODE.c.maintenance_id)
        .where(MAINTENANCE_NODE.c.node_id.in_(node_ids), MAINTENANCE.c.ended_ms.is_(None))
        .order_by(MAINTENANCE.c.start_ms.desc())
    )
    return {
        row["node_id"]: MaintenanceMark(id=row["id"], reason=row["reason"], start=row["start_ms"], end=row["end_ms"])
        for row in connection.execute(ahead).mappings()
    }
