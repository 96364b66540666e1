"""Pools to measure on: racks of nodes with eight GPUs, and a calendar full of bookings."""

from itertools import count
from random import Random
from typing import Final

from sqlalchemy import Connection, insert

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Atom, BindState, Booked, Entry, Grouping, Node, Shape, State
from muster_coordinator.service.nodes import operate
from muster_coordinator.store import migrate, read
from muster_coordinator.store.documents import written
from muster_coordinator.store.tables import ALLOCATION, ATOM, BOOKING, NODE, RESERVATION
from muster_shared.codec import dumps
from muster_shared.wire import FABRIC_DOMAIN

HOUR_MS: Final = 3_600_000
SHIFT_MS: Final = 12 * HOUR_MS
NOW_MS: Final = 1_800_000_000_000

DOMAIN_NODES: Final = 20  # nodes of one fabric: a gang of 16 fits with four spares
_MODEL: Final = "NVIDIA H100 80GB HBM3"
_MEMORY_MIB: Final = 80 * 1_024
_LOADS: Final = (0.0, 0.2, 0.5, 1.0)  # of one fabric in one shift: some are empty, some full
_MASKS: Final = (0b1111_1111, 0b1111_1111, 0b1111, 0b1111_0000, 0b1)  # whole nodes above all, halves, one GPU
_FILLER: Final = "rsv_that_fills_the_calendar"


def nodes(size: int, bookings: int, seed: int = 1, domain_nodes: int = DOMAIN_NODES) -> list[Node]:
    """Return `size` nodes that have `bookings` bookings in all, in shifts from `NOW_MS` on."""
    booked = _calendar(size, bookings, Random(seed))  # noqa: S311 - a scene, no secret
    return [
        Node(
            id=f"node_{number:05}",
            name=f"host-{number:05}",
            labels={FABRIC_DOMAIN: f"fabric-{number // domain_nodes:04}.1", "rack": f"r{number // 10:04}"},
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
    connection.execute(insert(NODE), [_node_row(node, pool_id, at) for node in pool])
    connection.execute(insert(ATOM), [_atom_row(node, atom) for node in pool for atom in node.atoms])
    bookings = [(f"alloc_{number}", node.id, one) for number, (node, one) in enumerate(_all_booked(pool))]
    if bookings:
        connection.execute(insert(RESERVATION), [_filler_row(pool_id, at)])
        connection.execute(insert(ALLOCATION), [_allocation_row(name, node_id) for name, node_id, _ in bookings])
        connection.execute(insert(BOOKING), [_booking_row(name, node_id, one) for name, node_id, one in bookings])


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
                booked[number].append(Booked(start_ms, start_ms + SHIFT_MS, chance.choice(_MASKS), _FILLER))
                made += 1
    raise AssertionError("shifts do not end")


def _all_booked(pool: list[Node]) -> list[tuple[Node, Booked]]:
    return [(node, one) for node in pool for one in node.booked]


def _node_row(node: Node, pool_id: str, at: Moment) -> dict[str, object]:
    return {
        "id": node.id,
        "pool_id": pool_id,
        "name": node.name,
        "machine_id": node.id,
        "token_hash": node.id,
        "intent": "schedulable",
        "leased": False,
        "silent": False,
        "operator_labels": dumps(dict(node.labels)).decode(),
        "past_boots": "[]",
        "seq": 0,
        "applied_rev": 0,
        "rev": 1,
        "version": 0,
        "changed_version": 0,
        "fault_ms": 0,
        "slots": "{}",
        "last_report_ms": at.ms,
        "created_ms": at.ms,
    }


def _atom_row(node: Node, atom: Atom) -> dict[str, object]:
    return {
        "node_id": node.id,
        "number": atom.number,
        "kind": atom.kind,
        "device": atom.device,
        "gpu": atom.gpu,
        "part": 0,
        "profile": "",
        "milli": atom.milli,
        "model": atom.model,
        "memory_mib": atom.memory_mib,
        "island": atom.island,
        "seen": True,
        "listed": True,
    }


def _filler_row(pool_id: str, at: Moment) -> dict[str, object]:
    return {
        "id": _FILLER,
        "tenant_id": "others",
        "pool_id": pool_id,
        "state": State.PLACED,
        "risks": "[]",
        "request": "{}",
        "shape": written(Shape((Entry("gpu", 8),))),
        "grouping": written(Grouping()),
        "agreed": "[]",
        "size": 1,
        "start_ms": at.ms,
        "duration_ms": SHIFT_MS,
        "generation": 1,
        "version": 1,
        "seed": 0,
        "repairing": False,
        "created_ms": at.ms,
        "body_hash": "",
    }


def _allocation_row(allocation_id: str, node_id: str) -> dict[str, object]:
    return {
        "id": allocation_id,
        "reservation_id": _FILLER,
        "node_id": node_id,
        "generation": 1,
        "live": True,
        "bind_state": BindState.RESERVED,
        "agreed": "[]",
        "guard_armed": False,
    }


def _booking_row(allocation_id: str, node_id: str, one: Booked) -> dict[str, object]:
    return {
        "allocation_id": allocation_id,
        "word": 0,
        "node_id": node_id,
        "reservation_id": _FILLER,
        "mask": one.mask,
        "start_ms": one.start_ms,
        "end_ms": one.end_ms,
        "live": True,
    }
