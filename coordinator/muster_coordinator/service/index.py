"""The pools in memory, each at one version, caught up from what has changed since. SQL stays the truth."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from threading import Lock

from sqlalchemy import Connection

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import NOBODY, Booked, Node
from muster_coordinator.core.placement.pipeline import Placed
from muster_coordinator.core.snapshot import FOREVER_MS, Snapshot
from muster_coordinator.store import read
from muster_coordinator.store.read import PoolRow
from muster_shared.time import Window


@dataclass(frozen=True, slots=True)
class _Known:
    snapshot: Snapshot
    ends: list[tuple[int, str]]  # a heap: when the first booking of a node ends, as far as is known
    turns: dict[str, int]  # nodes of which the clock alone makes something else, and when it does
    silent: dict[str, int]  # nodes, and since when


class PoolIndex:
    """What this process knows of every pool. Threads may share it: what it hands out never changes.

    A plan on it is made without a lock; the commit looks again at every node that has changed since.

    Source: design, section 16.
    """

    def __init__(self) -> None:
        """Know nothing yet: the first look at a pool reads all of it."""
        self._known: dict[str, _Known] = {}
        self._lock = Lock()  # never held while something is read

    def load(self, connection: Connection, at: Moment) -> None:
        """Read every pool, so that the first request finds them known."""
        for pool_row in read.pools(connection):
            self.snapshot(connection, pool_row, at)

    def snapshot(self, connection: Connection, pool_row: PoolRow, at: Moment) -> Snapshot:
        """Return a pool as the planner sees it now.

        Args:
            connection: In a transaction that has changed nothing of this pool.
            pool_row: As it was read in this transaction.
            at: Now.

        Cost: in nodes that have changed since the last look, but for the first.
        """
        known = self._known.get(pool_row.id)
        # A lower version than the known one: the database was restored from an older copy.
        moved: set[str] = set()
        if known is None or known.snapshot.version > pool_row.version:
            known = None
            changed: list[Node] = read.nodes(connection, pool_row, at.ms)
        else:
            late = {node_id for node_id, until_ms in known.turns.items() if until_ms <= at.ms}
            version = known.snapshot.version
            moved = late.union(read.changed_nodes(connection, pool_row, version) if version < pool_row.version else ())
            changed = read.nodes(connection, pool_row, at.ms, moved) if moved else []
        silent = read.silent_nodes(connection, pool_row, at.ms)
        gone = moved - {node.id for node in changed}
        with self._lock:
            answer = _caught_up(known, pool_row, changed, gone, silent, at.ms)
            latest = self._known.get(pool_row.id)
            if latest is known or latest is None or latest.snapshot.version <= pool_row.version or known is None:
                self._known[pool_row.id] = answer
        return answer.snapshot

    def booked(
        self, snapshot: Snapshot, bookings: Sequence[tuple[str, Booked]], following: Snapshot | None = None
    ) -> None:
        """Follow placements that were committed on a pool as it was planned: what has changed is known without a look.

        Args:
            snapshot: That the plans were made on; all of them together were the next version.
            bookings: As of `bookings_of`.
            following: The pool with these bookings at its next version, where somebody has worked it out.
        """
        with self._lock:
            known = self._known.get(snapshot.pool_id)
            if bookings and known is not None and known.snapshot is snapshot:
                ends = known.ends[:]
                for node_id, booked in bookings:
                    heappush(ends, (booked.end_ms, node_id))
                followed = following or snapshot.with_bookings(bookings, snapshot.version + 1)
                self._known[snapshot.pool_id] = replace(known, snapshot=followed, ends=ends)


def bookings_of(reservation_id: str, members: Iterable[Placed], occupied: Window) -> list[tuple[str, Booked]]:
    """Return what a plan books, by node.

    Args:
        reservation_id: That is placed.
        members: Its nodes and atoms.
        occupied: Its window, turnaround included.
    """
    return [(one.node_id, Booked(occupied.start_ms, occupied.end_ms, one.mask, reservation_id)) for one in members]


def _caught_up(
    known: _Known | None,
    pool_row: PoolRow,
    changed: Collection[Node],
    gone: Collection[str],
    silent: dict[str, int],
    now_ms: int,
) -> _Known:
    if known is None:
        snapshot = Snapshot.of(pool_row.id, pool_row.version, changed)
        ends = [(_first_end_ms(node), node.id) for node in changed if node.booked]
        heapify(ends)
        return _Known(snapshot, ends, _turns(changed), silent)
    is_quiet = not changed and not gone and silent == known.silent and not (known.ends and known.ends[0][0] <= now_ms)
    if is_quiet and known.snapshot.version == pool_row.version:
        return known
    nodes = {node.id: node for node in changed}
    for node_id in known.silent.keys() ^ silent.keys() | {
        one for one in silent if known.silent.get(one) != silent[one]
    }:
        node = nodes.get(node_id) or _node(known.snapshot, node_id)
        if node is not None:
            nodes[node_id] = replace(node, silent_since_ms=silent.get(node_id))
    ends = known.ends[:]
    for node in changed:
        if node.booked:
            heappush(ends, (_first_end_ms(node), node.id))
    while ends and ends[0][0] <= now_ms:
        _, node_id = heappop(ends)
        node = nodes.get(node_id) or _node(known.snapshot, node_id)
        if node is None or not node.booked or _first_end_ms(node) > now_ms:
            continue
        nodes[node_id] = left = replace(node, booked=tuple(one for one in node.booked if one.end_ms > now_ms))
        if left.booked:
            heappush(ends, (_first_end_ms(left), node_id))
    nodes = {node_id: node for node_id, node in nodes.items() if node_id not in gone}
    turns = {
        **{id_: ms for id_, ms in known.turns.items() if id_ not in nodes and id_ not in gone},
        **_turns(nodes.values()),
    }
    snapshot = known.snapshot.without_nodes(gone) if gone else known.snapshot
    return _Known(snapshot.with_nodes(pool_row.version, nodes.values(), now_ms), ends, turns, silent)


def _node(snapshot: Snapshot, node_id: str) -> Node | None:
    view = snapshot.views.get(node_id)
    return None if view is None else view.node


def _first_end_ms(node: Node) -> int:
    return min(one.end_ms for one in node.booked)


def _turns(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the nodes that must be read again for no other reason than the time, and when.

    An overrun becomes too long; a node that comes and goes has been quiet enough.
    """
    turns: dict[str, int] = {}
    for node in nodes:
        untils = [one.end_ms for one in node.booked if one.reservation_id == NOBODY and one.end_ms < FOREVER_MS]
        untils += [node.flapping_until_ms] if node.flapping_until_ms else []
        if untils:
            turns[node.id] = min(untils)
    return turns
