"""The storm brake at work: what it sees, what was moved lately, and one event for each change."""

from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import Connection, String, bindparam, func, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.repair.brake import MOVES_KEPT_MS, POOL, Mode, Storm, relaxed, storm
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.store import commit
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import EVENT
from muster_coordinator.store.tables import POOL as POOLS
from muster_shared.codec import dumps, loads

_NEXT: Final[Mapping[Mode, str]] = {
    "partial": "only bookings that start within 15 minutes are moved, at half the rate; "
    "look at what these nodes share: power, switch, rack",
    "domainLost": "its bookings are moved only at their start; look at what these nodes share: power, switch, rack",
    "poolDark": "the coordinator may be cut off: nothing is moved; check its network first, then the nodes",
    "cutOff": "no node is heard from: the coordinator takes itself to be cut off, nothing is moved; check its network",
}


def seen(snapshot: Snapshot, now_ms: int) -> Storm:
    """Judge a pool."""
    return storm(snapshot, now_ms)


def announced(pool_row: PoolRow) -> dict[str, Mode]:
    """Return what was announced of a pool: its modes by domain, without the normal ones."""
    modes: dict[str, Mode] = loads(pool_row.storm)
    return modes


def is_news(pool_row: PoolRow, found: Storm) -> bool:
    """Tell whether a storm is other than it was announced."""
    return announced(pool_row) != found.modes


def announce(connection: Connection, at: Moment, pool_row: PoolRow, found: Storm) -> frozenset[str]:
    """Keep the modes of a pool, and tell each that has changed, once.

    Args:
        connection: In a transaction that holds the pool's row.
        at: Now.
        pool_row: As it was read in this transaction.
        found: What is seen now.

    Returns:
        The domains in which more may be moved than before: bookings there are due for another look.
    """
    before = announced(pool_row)
    changed = [key for key in sorted(before.keys() | found.modes) if before.get(key) != found.modes.get(key)]
    if not changed:
        return frozenset()
    facts = [_fact(key, found) for key in changed]
    told = connection.execute(select(func.max(EVENT.c.version)).where(EVENT.c.subject == pool_row.id)).scalar()
    commit.emit_all(connection, at, facts, subject=pool_row.id, version=(told or 0) + 1, pool_id=pool_row.id)
    columns: dict[str, object] = {"storm": dumps(dict(found.modes)).decode()}
    if before.get(POOL) == "cutOff":
        # Whoever was cut off counts the silence of nodes, and the time that they had to bind, from now on.
        columns["heard_again_ms"] = at.ms
    connection.execute(update(POOLS).where(POOLS.c.id == pool_row.id).values(**columns))
    return relaxed(before, found.modes)


def _fact(key: str, found: Storm) -> Fact:
    where = {"domain": key} if key else {}
    mode = found.modes.get(key)
    if mode is None:
        return Fact("storm.ended", {**where, "next": "repairs go on as they are due"})
    data = {**where, "mode": mode, "nodes": found.bad[key], "next": _NEXT[mode]}
    return Fact("storm.began", data)


def moves_of(pool_row: PoolRow) -> list[int]:
    """Return when bookings of a pool were moved lately, ms UTC."""
    moves: list[int] = loads(pool_row.moves)
    return moves


_POOL_ID: Final = bindparam("pool_id", type_=String)
_MOVES_OF: Final = select(POOLS.c.moves).where(POOLS.c.id == _POOL_ID)
_MOVED: Final = update(POOLS).where(POOLS.c.id == _POOL_ID).values(moves=bindparam("new_moves", type_=String))


def count_move(connection: Connection, at: Moment, pool_id: str) -> None:
    """Take down that a booking was moved now. Whoever calls holds the pool's row."""
    kept = connection.execute(_MOVES_OF, {"pool_id": pool_id}).scalar_one()
    recent = [move for move in loads(kept) if move > at.ms - MOVES_KEPT_MS]
    connection.execute(_MOVED, {"pool_id": pool_id, "new_moves": dumps([*recent, at.ms]).decode()})


def domains_of(snapshot: Snapshot, node_ids: Iterable[str]) -> set[str]:
    """Return the fabric domains of some nodes."""
    views = (snapshot.views.get(node_id) for node_id in node_ids)
    return {view.node.home_domain for view in views if view is not None and view.node.home_domain}
