"""Usage records against the allocations that they are of."""

from collections.abc import Iterator

from sqlalchemy import Connection

from muster_coordinator.service.doctor.finding import Finding

_OVER = "('released', 'fenced', 'lost')"
_WAS_ACTIVE = "a.bound_ms IS NOT NULL AND r.activated_ms IS NOT NULL"


def records(connection: Connection) -> Iterator[Finding]:
    """Look whether each allocation that was active and is over has its record, and no other has one.

    Cost: in all allocations that ever were.
    """
    joined = (
        "FROM allocation a JOIN reservation r ON r.id = a.reservation_id LEFT JOIN usage u ON u.allocation_id = a.id "
    )
    for (missing,) in connection.exec_driver_sql(
        f"SELECT a.id {joined} WHERE a.bind_state IN {_OVER} AND {_WAS_ACTIVE} "
        "AND u.allocation_id IS NULL ORDER BY a.id"
    ):
        yield Finding("I24", missing, "was active and is over, and has no usage record")
    for allocation_id, state in connection.exec_driver_sql(
        f"SELECT a.id, a.bind_state {joined} WHERE u.allocation_id IS NOT NULL "
        f"AND NOT (a.bind_state IN {_OVER} AND {_WAS_ACTIVE}) ORDER BY a.id"
    ):
        yield Finding("I24", allocation_id, f"has a usage record, and is {state}")
    for allocation_id, start_ms, end_ms in connection.exec_driver_sql(
        f"SELECT a.id, u.start_ms, u.end_ms {joined} WHERE u.end_ms < u.start_ms OR u.start_ms < a.bound_ms "
        "OR u.start_ms < r.activated_ms OR u.tenant_id <> r.tenant_id ORDER BY a.id"
    ):
        yield Finding("I24", allocation_id, f"has a usage record of [{start_ms}, {end_ms}) that is not its own time")
