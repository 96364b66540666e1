"""Rows into the values that the core decides on. These are the only queries the planner knows."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, RowMapping, Select, String, and_, bindparam, or_, select

from muster_coordinator.core.model import (
    NOBODY,
    Atom,
    BindState,
    Booked,
    EndReason,
    MaintenanceWindow,
    Member,
    Node,
    Policy,
    Reservation,
    State,
)
from muster_coordinator.core.repair.flaps import flapping_until_ms
from muster_coordinator.core.snapshot import FOREVER_MS, Snapshot
from muster_coordinator.store import maintenance
from muster_coordinator.store.documents import as_agreed, as_grouping, as_shape
from muster_coordinator.store.node_atoms import held_by_cause, of_one_kind
from muster_coordinator.store.tables import ALLOCATION, ATOM, BOOKING, HOLD, LEASE, NODE, POOL, RESERVATION
from muster_shared.codec import loads
from muster_shared.devices import WORD_BITS
from muster_shared.time import Window

HELD_BY_NODE = (BindState.BINDING, BindState.BOUND, BindState.UNBINDING)
"""Bind states in which a tenant may still reach the devices."""


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool, its policy, and the epoch of its background work (0 before there was any)."""

    id: str
    name: str
    version: int
    freed_version: int
    policy: Policy
    epoch: int
    epoch_since_ms: int  # or since when nodes are heard again, after all of them were silent at once
    storm: str = "{}"  # of `tables.Pool`, as are the moves
    moves: str = "[]"


# Built once: every transaction begins with one of them, and building costs more than running.
_POOLS: Final = select(POOL, LEASE.c.epoch, LEASE.c.since_ms).outerjoin(LEASE, LEASE.c.pool_id == POOL.c.id)
_NAME: Final = bindparam("name", type_=String)
_POOL: Final = _POOLS.where(or_(POOL.c.id == _NAME, POOL.c.name == _NAME))
_POOL_LOCKED: Final = _POOL.with_for_update(of=POOL)


def pool(connection: Connection, id_or_name: str, *, lock: bool = False) -> PoolRow | None:
    """Read one pool by id or name; with `lock`, hold it until the transaction ends."""
    row = connection.execute(_POOL_LOCKED if lock else _POOL, {"name": id_or_name}).mappings().first()
    return None if row is None else _pool(row)


def known_pool(connection: Connection, pool_id: str, *, lock: bool = False) -> PoolRow:
    """Read the pool of a node or a reservation: it exists, the foreign key says so, and pools are never deleted."""
    found = pool(connection, pool_id, lock=lock)
    assert found is not None, "a pool is never deleted"
    return found


def pools(connection: Connection) -> list[PoolRow]:
    """Read every pool, in the order of their ids."""
    return [_pool(row) for row in connection.execute(_POOLS.order_by(POOL.c.id)).mappings().all()]


_VERSION: Final = select(POOL.c.version).where(POOL.c.id == _NAME)


def version(connection: Connection, pool_id: str) -> int:
    """Read the version of a pool as it is by now."""
    return int(connection.execute(_VERSION, {"name": pool_id}).scalar_one())


def policy_document(policy: Policy) -> dict[str, int]:
    """Return every value of a policy by name."""
    return asdict(policy)


def _pool(row: RowMapping) -> PoolRow:
    policy = _policy(row["policy"])
    return PoolRow(
        row["id"],
        row["name"],
        row["version"],
        row["freed_version"],
        policy,
        row["epoch"] or 0,
        max(row["since_ms"] or 0, row["heard_again_ms"]),
        row["storm"],
        row["moves"],
    )


@cache
def _policy(written: str) -> Policy:
    return Policy(**loads(written))


def snapshot(
    connection: Connection,
    pool_row: PoolRow,
    now_ms: int,
    node_ids: Collection[str] | None = None,
) -> Snapshot:
    """Read a pool, or some of its nodes, as the planner sees it at `now_ms`."""
    return Snapshot.of(pool_row.id, pool_row.version, nodes(connection, pool_row, now_ms, node_ids))


def nodes(
    connection: Connection,
    pool_row: PoolRow,
    now_ms: int,
    node_ids: Collection[str] | None = None,
    window: Window | None = None,
) -> list[Node]:
    """Read the nodes of a pool, or some of them, as the planner sees them at `now_ms`.

    With `window`, without the bookings that lie wholly outside it: enough to see what is free in it.
    """
    in_pool = (NODE.c.pool_id == pool_row.id) & NODE.c.removed_ms.is_(None)
    chosen = in_pool if node_ids is None else and_(in_pool, NODE.c.id.in_(node_ids))
    of_chosen = select(NODE.c.id).where(chosen)
    atoms = _grouped(connection, select(ATOM).where(ATOM.c.node_id.in_(of_chosen)).order_by(ATOM.c.number))
    holds = _grouped(connection, select(HOLD).where(HOLD.c.node_id.in_(of_chosen)))
    booked = _booked(connection, of_chosen, now_ms, pool_row.policy, window)
    upkeep = maintenance.declared(connection, of_chosen)
    return [
        _node(row, atoms[row["id"]], holds[row["id"]], booked[row["id"]], upkeep[row["id"]], pool_row, now_ms)
        for row in connection.execute(select(NODE).where(chosen)).mappings()
    ]


_OF_POOL: Final = NODE.c.pool_id == bindparam("pool_id", type_=String)
_CHANGED: Final = select(NODE.c.id).where(_OF_POOL, NODE.c.changed_version > bindparam("version", type_=BigInteger))
_HEARD_MS: Final = NODE.c.last_report_ms
_LATE: Final = select(NODE.c.id, _HEARD_MS).where(
    _OF_POOL, or_(_HEARD_MS.is_(None), bindparam("cutoff_ms", type_=BigInteger) > _HEARD_MS)
)


def changed_nodes(connection: Connection, pool_row: PoolRow, version: int) -> list[str]:
    """Return the nodes of which a plan could see a change since this version of the pool."""
    return list(connection.execute(_CHANGED, {"pool_id": pool_row.id, "version": version}).scalars())


def silent_nodes(connection: Connection, pool_row: PoolRow, now_ms: int) -> dict[str, int]:
    """Return the nodes that have been silent for longer than their pool allows, and since when."""
    before = {"pool_id": pool_row.id, "cutoff_ms": now_ms - pool_row.policy.unreachable_after_ms}
    rows = connection.execute(_LATE, before)
    since = ((row.id, silent_since(row.last_report_ms, pool_row, now_ms)) for row in rows)
    return {node_id: since_ms for node_id, since_ms in since if since_ms is not None}


def silent_since(last_report_ms: int | None, pool_row: PoolRow, now_ms: int) -> int | None:
    """Return since when a node has been silent, if that is longer than its pool allows; else None.

    Silence is counted from the later of its last report and the epoch's start + `reconnectGrace`: a coordinator that
    was away for an hour moves nothing because of its own absence. Source: design, section 16.
    """
    if last_report_ms is None:
        return 0
    heard_ms = max(last_report_ms, pool_row.epoch_since_ms + pool_row.policy.reconnect_grace_ms)
    return heard_ms if now_ms - heard_ms > pool_row.policy.unreachable_after_ms else None


def node_labels(row: RowMapping) -> dict[str, str]:
    """Return the labels of a node row: what its agent measured, and what people gave it."""
    measured: dict[str, str] = loads(row["inventory"])["labels"] if row["inventory"] else {}
    given: dict[str, str] = loads(row["operator_labels"])
    return {**given, **measured}


# Built once: they are read at each step of each reservation.
_IDS: Final = bindparam("ids", type_=String, expanding=True)
_RESERVATIONS: Final = select(RESERVATION).where(RESERVATION.c.id.in_(_IDS)).order_by(RESERVATION.c.id)
_RESERVATIONS_LOCKED: Final = _RESERVATIONS.with_for_update()
_MEMBERS: Final = (
    select(ALLOCATION).where(ALLOCATION.c.reservation_id.in_(_IDS), ALLOCATION.c.live).order_by(ALLOCATION.c.node_id)
)
_HOLDERS: Final = select(ALLOCATION.c.id, ALLOCATION.c.node_id).where(
    ALLOCATION.c.node_id.in_(_IDS), ALLOCATION.c.bind_state.in_(HELD_BY_NODE)
)
_MASKS: Final = select(BOOKING.c.allocation_id, BOOKING.c.word, BOOKING.c.mask).where(BOOKING.c.allocation_id.in_(_IDS))

Read = tuple[Reservation, RowMapping]
"""A reservation with its live members, and its row."""


def reservation(connection: Connection, reservation_id: str, *, lock: bool = False) -> Read | None:
    """Read one reservation with its live members, and its row; with `lock`, hold it until the transaction ends."""
    return reservations(connection, (reservation_id,), lock=lock).get(reservation_id)


def reservations(connection: Connection, reservation_ids: Collection[str], *, lock: bool = False) -> dict[str, Read]:
    """Read reservations by id, as `reservation` does; those that do not exist are left out."""
    wanted = {"ids": list(reservation_ids)}
    rows = connection.execute(_RESERVATIONS_LOCKED if lock else _RESERVATIONS, wanted).mappings().all()
    members = _members(connection, reservation_ids)
    return {row["id"]: (as_reservation(row, members[row["id"]]), row) for row in rows}


def as_reservation(row: RowMapping, members: Iterable[Member] = ()) -> Reservation:
    """Build the core's value from a row."""
    return Reservation(
        id=row["id"],
        tenant_id=row["tenant_id"],
        pool_id=row["pool_id"],
        state=State(row["state"]),
        shape=as_shape(row["shape"]),
        size=row["size"],
        grouping=as_grouping(row["grouping"]),
        agreed=as_agreed(row["agreed"]),
        start_ms=row["start_ms"],
        duration_ms=row["duration_ms"],
        fixed_end_ms=row["fixed_end_ms"],
        latest_start_ms=row["latest_start_ms"],
        generation=row["generation"],
        members=tuple(members),
        binding_since_ms=row["binding_since_ms"],
        end_reason=EndReason(row["end_reason"]) if row["end_reason"] else None,
        created_ms=row["created_ms"],
        repairing=row["repairing"],
        on_member_loss=row["on_member_loss"],
        activated_ms=row["activated_ms"],
        protected_until_ms=row["protected_until_ms"],
        spot=row["spot"],
    )


SOONEST_FIRST = (RESERVATION.c.start_ms, RESERVATION.c.size.desc(), RESERVATION.c.created_ms, RESERVATION.c.id)
"""Who is looked at first where not all can be helped: soonest start, then largest gang, then oldest.

Source: design, section 7, "Order in a storm".
"""


def soonest_first(connection: Connection, reservation_ids: Collection[str]) -> tuple[str, ...]:
    """Return reservations in the order in which they are looked at."""
    if not reservation_ids:
        return ()
    wanted = select(RESERVATION.c.id).where(RESERVATION.c.id.in_(reservation_ids)).order_by(*SOONEST_FIRST)
    return tuple(connection.execute(wanted).scalars())


def masks(connection: Connection, allocation_ids: Collection[str]) -> dict[str, int]:
    """Return the atom mask of each allocation."""
    found: dict[str, int] = {}
    rows = connection.execute(_MASKS, {"ids": list(allocation_ids)})
    for allocation_id, word, bits in rows:
        found[allocation_id] = found.get(allocation_id, 0) | mask_of(word, bits)
    return found


def _members(connection: Connection, reservation_ids: Collection[str]) -> defaultdict[str, list[Member]]:
    members: defaultdict[str, list[Member]] = defaultdict(list)
    rows = connection.execute(_MEMBERS, {"ids": list(reservation_ids)}).mappings().all()
    if not rows:
        return members
    own = masks(connection, [row["id"] for row in rows])
    others = _holders(connection, {row["node_id"] for row in rows})
    for row in rows:
        member = Member(
            allocation_id=row["id"],
            node_id=row["node_id"],
            mask=own[row["id"]],
            generation=row["generation"],
            bind=BindState(row["bind_state"]),
            agreed=as_agreed(row["agreed"]),
            ordered_ms=row["ordered_ms"],
            blocked=any(mask & own[row["id"]] for other, mask in others[row["node_id"]] if other != row["id"]),
            reason=row["bind_reason"],
        )
        members[row["reservation_id"]].append(member)
    return members


def _holders(connection: Connection, node_ids: Collection[str]) -> defaultdict[str, list[tuple[str, int]]]:
    """Return, for each node, the allocations that may still reach devices, with their masks."""
    rows = connection.execute(_HOLDERS, {"ids": list(node_ids)}).all()
    found = masks(connection, [row.id for row in rows]) if rows else {}
    holders: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in rows:
        holders[row.node_id].append((row.id, found.get(row.id, 0)))
    return holders


def _booked(
    connection: Connection,
    of_chosen: Select[tuple[str]],
    now_ms: int,
    policy: Policy,
    window: Window | None,
) -> defaultdict[str, list[Booked]]:
    booked: defaultdict[str, list[Booked]] = defaultdict(list)
    live = select(BOOKING).where(BOOKING.c.node_id.in_(of_chosen), BOOKING.c.live, BOOKING.c.end_ms > now_ms)
    if window is not None:
        live = live.where(BOOKING.c.end_ms > window.start_ms, BOOKING.c.start_ms < window.end_ms)
    for row in connection.execute(live).mappings():
        mask = mask_of(row["word"], row["mask"])
        booked[row["node_id"]].append(Booked(row["start_ms"], row["end_ms"], mask, row["reservation_id"]))
    # The overrun is a hold on the atoms: it never collides with the next booking's row (design, section 16).
    overrun = (
        select(BOOKING.c.node_id, BOOKING.c.word, BOOKING.c.mask, ALLOCATION.c.dropped_ms)
        .join(ALLOCATION, ALLOCATION.c.id == BOOKING.c.allocation_id)
        .where(BOOKING.c.node_id.in_(of_chosen), ALLOCATION.c.bind_state == BindState.UNBINDING)
    )
    for row in connection.execute(overrun).mappings():
        expected_ms = row["dropped_ms"] + policy.unbind_timeout_ms
        until_ms = expected_ms if expected_ms > now_ms else FOREVER_MS
        mask = mask_of(row["word"], row["mask"])
        booked[row["node_id"]].append(Booked(0, until_ms, mask, NOBODY))
    return booked


def mask_of(word: int, bits: int) -> int:
    """Return the atom mask of one booking row."""
    return bits << (word * WORD_BITS)


def _node(
    row: RowMapping,
    atom_rows: list[RowMapping],
    hold_rows: list[RowMapping],
    booked: list[Booked],
    upkeep: tuple[MaintenanceWindow, ...],
    pool_row: PoolRow,
    now_ms: int,
) -> Node:
    listed = [atom for atom in atom_rows if atom["listed"]]
    atoms = tuple(
        Atom(
            atom["number"],
            atom["kind"],
            atom["device"],
            atom["model"],
            atom["memory_mib"],
            atom["island"],
            atom["numa"],
            atom["profile"],
            atom["milli"],
            atom["gpu"],
        )
        for atom in listed
    )
    booked = of_one_kind(atom_rows, maintenance.with_declared(booked, upkeep, atom_rows, now_ms))
    flips: list[int] = loads(row["flips"])
    return Node(
        id=row["id"],
        name=row["name"],
        labels=node_labels(row),
        atoms=atoms,
        intent=row["intent"],
        silent_since_ms=silent_since(row["last_report_ms"], pool_row, now_ms),
        leased=row["leased"],
        held=held_by_cause(listed, hold_rows),
        fault_ms=row["fault_ms"],
        turned_ms=max(flips, default=0),
        sound_since_ms=row["sound_since_ms"],
        flapping_until_ms=flapping_until_ms(flips, now_ms),
        home_domain=row["home_domain"] or "",
        booked=tuple(sorted(booked, key=lambda one: (one.start_ms, one.end_ms, one.mask, one.reservation_id))),
        maintenance=upkeep,
    )


def _grouped(connection: Connection, rows: Select[Any]) -> defaultdict[str, list[RowMapping]]:
    grouped: defaultdict[str, list[RowMapping]] = defaultdict(list)
    for row in connection.execute(rows).mappings():
        grouped[row["node_id"]].append(row)
    return grouped
