"""Events against what they tell of."""

from collections.abc import Iterator

from sqlalchemy import Connection

from muster_coordinator.service.doctor.finding import Finding


def versions(connection: Connection) -> Iterator[Finding]:
    """Look whether every change of a reservation and of a node has its one event.

    Cost: in all events that are kept.
    """
    told = {
        subject: (count, first, last)
        for subject, count, first, last in connection.exec_driver_sql(
            "SELECT subject, COUNT(*), MIN(version), MAX(version) FROM event GROUP BY subject"
        )
    }
    for table in ("reservation", "node"):
        query = f"SELECT id, version FROM {table} ORDER BY id"  # noqa: S608 - two constants
        for row_id, version in connection.exec_driver_sql(query):
            count, first, last = told.get(row_id, (0, 1, 0))
            if last != version or count != last - first + 1:
                yield Finding("I28", row_id, f"has changed {version} times, and {count} events tell of it")
