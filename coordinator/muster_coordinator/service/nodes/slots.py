"""An operator cuts GPUs into shares, or makes them whole again: one kind at a time, and never under a booking."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, func, select

from muster_coordinator.clock import Moment
from muster_coordinator.service.nodes.atoms import ALL_GPUS, keep_atoms, slots_of
from muster_coordinator.service.nodes.operate import locked_node
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import HELD_BY_NODE
from muster_coordinator.store.tables import ALLOCATION, ATOM, BOOKING
from muster_shared.codec import dumps
from muster_shared.errors import Code, Problem, invalid
from muster_shared.time import format_instant
from muster_shared.wire import Gpu, Inventory

_SHARED_MAX: Final = 378  # six of a node's eight mask words: a report of replaced GPUs must never be refused for shares


def cut(connection: Connection, at: Moment, name: str, device: str | None, shares: int) -> None:
    """Let a node's GPUs be booked in `shares` parts each, or as a whole with 0.

    Args:
        connection: In a transaction.
        at: Now.
        name: Or id of the node.
        device: UUID of one GPU; None for all of the node, which forgets what was said of single ones.
        shares: 0 or 2..64.

    Raises:
        Problem: `NOT_FOUND`; `INVALID_INPUT` for a GPU that the node does not have, or that is in MIG mode; `CONFLICT`
            while any of them is booked, now or later, or not yet let go of, or where so many shares would leave the
            node no numbers for GPUs that are replaced later.
    """
    row = locked_node(connection, name)
    inventory = Inventory.model_validate_json(row["inventory"]) if row["inventory"] else None
    gpus = [] if inventory is None else inventory.gpus
    chosen = [gpu for gpu in gpus if device is None or gpu.uuid == device]
    if inventory is None or not chosen:
        raise invalid("device", f"{row['name']!r} has no such GPU; `muster nodes get {row['name']}` lists them")
    if device is not None and chosen[0].mig_mode:
        raise invalid("device", "the GPU is in MIG mode and offers its instances; turn that off on the host first")
    before = slots_of(row["slots"])
    after = {**before, device: shares} if device is not None else {ALL_GPUS: shares} if shares else {}
    changing = [gpu.uuid for gpu in chosen if not gpu.mig_mode and _shares(before, gpu) != _shares(after, gpu)]
    _refuse_if_booked(connection, row["id"], row["name"], changing)
    had = _numbered(connection, row["id"])
    keep_atoms(connection, row["id"], inventory, after)
    if had < _numbered(connection, row["id"]) > _SHARED_MAX:
        raise Problem(
            Code.CONFLICT,
            f"{row['name']!r} would have more than {_SHARED_MAX} GPUs, instances and shares, former ones included: cut "
            "its GPUs into fewer shares, or only some of them with `--device`",
        )
    written = dumps(after).decode()
    fact = Fact("node.slots_changed", {"slots": written_slots(written), "former": written_slots(row["slots"])})
    commit.record_node(connection, at, row["id"], row["pool_id"], fact, slots=written)
    commit.pool_changed(connection, row["pool_id"], [row["id"]])


def _numbered(connection: Connection, node_id: str) -> int:
    return connection.execute(select(func.count()).where(ATOM.c.node_id == node_id)).scalar_one()


def _shares(slots: dict[str, int], gpu: Gpu) -> int:
    return slots.get(gpu.uuid, slots.get(ALL_GPUS, 0))


def _refuse_if_booked(connection: Connection, node_id: str, name: str, gpus: Collection[str]) -> None:
    atoms = select(ATOM.c.number).where(ATOM.c.node_id == node_id, ATOM.c.gpu.in_(gpus))
    mask = sum(1 << number for number in connection.execute(atoms).scalars())
    held = ALLOCATION.c.bind_state.in_(HELD_BY_NODE)
    booked = (
        select(BOOKING.c.reservation_id, BOOKING.c.word, BOOKING.c.mask, BOOKING.c.end_ms)
        .join(ALLOCATION, ALLOCATION.c.id == BOOKING.c.allocation_id)
        .where(BOOKING.c.node_id == node_id, BOOKING.c.live | held)
        .order_by(BOOKING.c.end_ms.desc())
    )
    for row in connection.execute(booked):
        if read.mask_of(row.word, row.mask) & mask:
            raise Problem(
                Code.CONFLICT,
                f"{name!r} is booked by {row.reservation_id} until {format_instant(row.end_ms)}: a GPU changes its "
                "kind only when nobody has booked it; cordon the node and let its bookings move or end first",
            )


def written_slots(slots: str) -> dict[str, int]:
    """Return the shares as the API shows them: by UUID, `*` for all other GPUs of the node."""
    return {device or "*": shares for device, shares in sorted(slots_of(slots).items())}
