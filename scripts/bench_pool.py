"""Pools to measure on: racks of nodes with eight GPUs, and a calendar full of bookings."""

from itertools import count
from random import Random
from typing import Final

from sqlalchemy import Connection, insert

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Atom, Booked, Node
from muster_coordinator.service.nodes import operate
from muster_coordinator.store import commit, migrate, read
from muster_coordinator.store.tables import ALLOCATION, ATOM, BOOKING, NODE, RESERVATION
from muster_shared.time import Window
from muster_shared.wire import FABRIC_DOMAIN
from scripts.bench_rows import Gang, allocation_row, atom_row, booking_row, node_row, reservation_row

HOUR_MS: Final = 3_600_000
SHIFT_MS: Final = 12 * HOUR_MS
NOW_MS: Final = 1_800_000_000_000

DOMAIN_NODES: Final = 20  # nodes of one fabric: a gang of 16 fits with four spares
_MODEL: Final = "NVIDIA H100 80GB HBM3"
_MEMORY_MIB: Final = 80 * 1_024
_LOADS: Final = (0.0, 0.2, 0.5, 1.0)  # of one fabric in one shift: some are empty, some full
_MASKS: Final = (0b1111_1111, 0b1111_1111, 0b1111, 0b1111_0000, 0b1)  # whole nodes above all, halves, one GPU


def nodes(size: int, bookings: int, seed: int = 1, domain_nodes: int = DOMAIN_NODES) -> list[Node]:
    """Return `size` nodes that have `bookings` bookings in all, in shifts from `NOW_MS` on."""
    booked = _calendar(size, bookings, Random(seed))  # noqa: S311 - a scene, no secret
    return [
        Node(
            id=f"node_{number:05}",
            name=f"host-{number:05}",
            labels={FABRIC_DOMAIN: (domain := f"fabric-{number // domain_nodes:04}.1"), "rack": f"r{number // 10:04}"},
            home_domain=domain,
            atoms=tuple(
                Atom(gpu, "gpu", uuid := f"GPU-{number:05}-{gpu}", _MODEL, _MEMORY_MIB, 0, gpu=uuid) for gpu in range(8)
            ),
            booked=tuple(booked[number]),
        )
        for number in range(size)
    ]


def shifts(pool: list[Node]) -> int:
    """Return how many shifts the calendar of a pool has."""
    return max((one.end_ms - NOW_MS) // SHIFT_MS for node in pool for one in node.booked)


def fill(connection: Connection, at: Moment, pool: list[Node]) -> None:
    """Make an empty database hold this pool, in the caller's transaction."""
    migrate.upgrade(connection)
    operate.prepare(connection, at, "default", {})
    pool_id = read.pools(connection)[0].id
    connection.execute(insert(NODE), [node_row(node, pool_id, at) for node in pool])
    connection.execute(insert(ATOM), [atom_row(node, atom) for node in pool for atom in node.atoms])
    if booked := _all_booked(pool):
        book(connection, at, booked)


def book(connection: Connection, at: Moment, gangs: list[Gang]) -> None:
    """Book gangs in a filled database, in the caller's transaction: nobody asks whether they fit."""
    pool_id = read.pools(connection)[0].id
    connection.execute(insert(RESERVATION), [reservation_row(gang, pool_id, at) for gang in gangs])
    members = [(f"{gang.id}_{node_id}", gang, node_id) for gang in gangs for node_id in gang.node_ids]
    if members:
        connection.execute(insert(ALLOCATION), [allocation_row(*member) for member in members])
        connection.execute(insert(BOOKING), [booking_row(*member) for member in members])
        commit.pool_changed(connection, pool_id, [node_id for _, _, node_id in members])


def _calendar(size: int, bookings: int, chance: Random) -> list[list[Booked]]:
    booked: list[list[Booked]] = [[] for _ in range(size)]
    made = 0
    for shift in count():
        start_ms = NOW_MS + shift * SHIFT_MS
        loads = [chance.choice(_LOADS) for _ in range(0, size, DOMAIN_NODES)]
        for number in range(size):
            if made == bookings:
                return booked
            if chance.random() < loads[number // DOMAIN_NODES]:
                booked[number].append(
                    Booked(start_ms, start_ms + SHIFT_MS, chance.choice(_MASKS), f"rsv_others_{made:06}")
                )
                made += 1
    raise AssertionError("shifts do not end")


def _all_booked(pool: list[Node]) -> list[Gang]:
    return [
        Gang(one.reservation_id, (node.id,), one.mask, Window(one.start_ms, one.end_ms))
        for node in pool
        for one in node.booked
    ]
