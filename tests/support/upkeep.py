"""What must hold of maintenance windows after every commit, by plain SQL; shares nothing with the code it judges."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from sqlalchemy import Connection

from tests.support.story import Story

WORD_BITS = 63
Span = tuple[int, int, int]
"""`(start_ms, end_ms, mask)` of what is booked."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One node of one window."""

    id: str
    version: int
    start_ms: int
    end_ms: int
    ended_ms: int | None
    node_id: str
    booked: bool


def check_upkeep(
    connection: Connection, story: Story, atoms: Mapping[str, int], fresh: Collection[str]
) -> Iterator[str]:
    """Check maintenance against the calendar.

    Args:
        connection: In a transaction, or outside any.
        story: That has read every event.
        atoms: The mask of every atom of each node.
        fresh: Allocations that joined in the transaction that is checked.
    """
    rows = connection.exec_driver_sql(
        "SELECT m.id, m.version, m.start_ms, m.end_ms, m.ended_ms, n.node_id, n.booked "
        "FROM maintenance m JOIN maintenance_node n ON n.maintenance_id = m.id"
    )
    declared = [Declared(*row) for row in rows]
    yield from story.differences({one.id: (None, one.version) for one in declared})
    strangers = connection.exec_driver_sql(
        "SELECT b.allocation_id FROM booking b WHERE b.live AND NOT EXISTS "
        "(SELECT 1 FROM allocation a WHERE a.id = b.allocation_id) AND NOT EXISTS "
        "(SELECT 1 FROM maintenance_node n WHERE n.maintenance_id || '/' || n.node_id = b.allocation_id)"
    )
    for (holder,) in strangers:
        yield f"I13 {holder} has a live booking and is neither an allocation nor maintenance"
    if declared:
        yield from _bookings(connection, declared, atoms)
        yield from _windows(declared)
        yield from _newcomers(connection, declared, fresh)


def _bookings(connection: Connection, declared: list[Declared], atoms: Mapping[str, int]) -> Iterator[str]:
    found: defaultdict[str, list[tuple[str, str, int, int, int]]] = defaultdict(list)
    for holder, node_id, owner, word, mask, start_ms, end_ms in connection.exec_driver_sql(
        "SELECT allocation_id, node_id, reservation_id, word, mask, start_ms, end_ms FROM booking WHERE live "
        "AND allocation_id IN (SELECT maintenance_id || '/' || node_id FROM maintenance_node)"
    ):
        found[holder].append((node_id, owner, mask << (WORD_BITS * word), start_ms, end_ms))
    for one in declared:
        rows = found[f"{one.id}/{one.node_id}"]
        if bool(rows) != (bool(one.booked) and one.ended_ms is None):
            yield f"I13 {one.id} has {len(rows)} live bookings on {one.node_id}, and booked is {bool(one.booked)}"
        if any(row[:2] + row[3:] != (one.node_id, one.id, one.start_ms, one.end_ms) for row in rows):
            yield f"I13 {one.id} has booked {one.node_id} for another window, or another node"
        mask = sum(row[2] for row in rows)
        if rows and mask != atoms[one.node_id]:
            yield f"I13 {one.id} has booked {mask:b} of {one.node_id}, which has {atoms[one.node_id]:b}"


def _windows(declared: list[Declared]) -> Iterator[str]:
    for one, other in combinations([one for one in declared if one.ended_ms is None], 2):
        if one.node_id == other.node_id and max(one.start_ms, other.start_ms) < min(one.end_ms, other.end_ms):
            yield f"I13 {one.id} and {other.id} overlap on {one.node_id}"


def _newcomers(connection: Connection, declared: list[Declared], fresh: Collection[str]) -> Iterator[str]:
    """Nobody new is let into a window, whether it could book the node or not."""
    if not fresh:
        return
    named = ", ".join(f"'{one}'" for one in sorted(fresh))
    for holder, node_id, start_ms, end_ms in connection.exec_driver_sql(
        f"SELECT allocation_id, node_id, start_ms, end_ms FROM booking WHERE live AND allocation_id IN ({named})"
    ):
        for one in declared:
            is_open = one.node_id == node_id and one.ended_ms is None
            if is_open and max(one.start_ms, start_ms) < min(one.end_ms, end_ms):
                yield f"I19 {holder} was booked into {one.id} on {node_id}"
