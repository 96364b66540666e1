"""Usage records against the allocations that they are of."""

from collections.abc import Iterator

from sqlalchemy import Connection

from muster_coordinator.service.doctor.finding import Finding

_OVER = "('released', 'fenced', 'lost')"
_JOINED = (
    "FROM allocation a JOIN reservation r ON r.id = a.reservation_id LEFT JOIN usage u ON u.allocation_id = a.id WHERE"
)


def records(connection: Connection) -> Iterator[Finding]:
    """Look whether each allocation that was bound and is over has its record, of its own time, and no other has one.

    Cost: in all allocations that ever were.
    """
    for (missing,) in connection.exec_driver_sql(
        f"SELECT a.id {_JOINED} a.bind_state IN {_OVER} AND a.bound_ms IS NOT NULL "
        "AND u.allocation_id IS NULL ORDER BY a.id"
    ):
        yield Finding("I24", missing, "was bound and is over, and has no usage record")
    for allocation_id, state in connection.exec_driver_sql(
        f"SELECT a.id, a.bind_state {_JOINED} u.allocation_id IS NOT NULL "
        f"AND NOT (a.bind_state IN {_OVER} AND a.bound_ms IS NOT NULL) ORDER BY a.id"
    ):
        yield Finding("I24", allocation_id, f"has a usage record, and is {state}")
    for allocation_id, start_ms, end_ms in connection.exec_driver_sql(
        f"SELECT a.id, u.start_ms, u.end_ms {_JOINED} u.end_ms < u.start_ms "
        "OR u.tenant_id <> r.tenant_id OR u.pool_id <> r.pool_id OR u.reservation_id <> r.id OR u.node_id <> a.node_id "
        "OR (u.end_ms > u.start_ms AND u.start_ms < a.bound_ms) ORDER BY a.id"
    ):
        yield Finding("I24", allocation_id, f"has a usage record of [{start_ms}, {end_ms}) that is not its own")
