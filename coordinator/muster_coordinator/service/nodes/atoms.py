"""What a node offers: its GPUs, their MIG instances, or shares of them, as numbered atoms."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from sqlalchemy import Connection, insert, select, update

from muster_coordinator.store import maintenance, read
from muster_coordinator.store.read import HELD_BY_NODE
from muster_coordinator.store.tables import ALLOCATION, ATOM, BOOKING, NODE
from muster_shared.codec import loads
from muster_shared.devices import MILLI_PER_GPU, DeviceClass, share_milli
from muster_shared.errors import Code, Problem
from muster_shared.wire import Gpu, Inventory

_ATOMS_MAX: Final = 504  # eight mask words: shares, instances and replaced hardware, not a hostile list

ALL_GPUS: Final = ""
"""The key of `node.slots` that stands for every GPU of the node without one of its own."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """One atom as it should be listed. `kind`, `gpu`, `profile` and `part` say which one it is."""

    kind: DeviceClass
    device: str
    gpu: str
    part: int
    profile: str
    milli: int
    model: str
    memory_mib: int
    island: int
    numa: int | None
    seen: bool


def keep_atoms(connection: Connection, node_id: str, inventory: Inventory, slots: Mapping[str, int]) -> None:
    """Make the node's atoms those that its GPUs offer. Numbers are append-only: none is given to another device.

    A MIG instance that was made anew takes over the number of its like, unless somebody has booked that one: then the
    booked atom is lost, and the new instance is another.

    Args:
        connection: In a transaction that holds the pool's row.
        node_id: Of the node.
        inventory: As its agent reports it.
        slots: Shares that GPUs are cut into, by UUID, or by `ALL_GPUS`.

    Raises:
        Problem: `INVALID_INPUT` for a UUID that comes twice; `CONFLICT` for one that another node reports, or for more
            atoms than a node may ever have had. Nothing was stored.
    """
    _refuse_strangers(connection, node_id, inventory)
    busy = booked_mask(connection, node_id)
    rows = connection.execute(select(ATOM).where(ATOM.c.node_id == node_id).order_by(ATOM.c.number)).mappings().all()
    free: dict[tuple[str, str, str, int], int] = {}
    for row in rows:  # of several, the newest one stands
        free[row["kind"], row["gpu"], row["profile"], row["part"]] = row["number"]
    devices = {row["number"]: row["device"] for row in rows}
    connection.execute(update(ATOM).where(ATOM.c.node_id == node_id).values(listed=False))
    next_number = len(rows)
    for offer in _offers(inventory, slots):
        number = free.get((offer.kind, offer.gpu, offer.profile, offer.part))
        if number is not None and (devices[number] == offer.device or not busy >> number & 1):
            known = update(ATOM).where(ATOM.c.node_id == node_id, ATOM.c.number == number)
            connection.execute(known.values(**asdict(offer), listed=True))
            continue
        if next_number >= _ATOMS_MAX:
            raise Problem(
                Code.CONFLICT,
                f"this node would have had more than {_ATOMS_MAX} GPUs, instances and shares, former ones included: "
                "cut it into fewer shares, or remove it and let it join again",
            )
        connection.execute(insert(ATOM).values(node_id=node_id, number=next_number, **asdict(offer), listed=True))
        next_number += 1
    if next_number > len(rows):
        maintenance.cover(connection, node_id)


def booked_mask(connection: Connection, node_id: str) -> int:
    """Return the atoms of a node that a live booking touches, now or later, or that somebody has not let go of."""
    held = ALLOCATION.c.bind_state.in_(HELD_BY_NODE)
    rows = connection.execute(
        select(BOOKING.c.word, BOOKING.c.mask)
        .join(ALLOCATION, ALLOCATION.c.id == BOOKING.c.allocation_id)
        .where(BOOKING.c.node_id == node_id, BOOKING.c.live | held)
    )
    mask = 0
    for word, bits in rows:
        mask |= read.mask_of(word, bits)
    return mask


def slots_of(written: str) -> dict[str, int]:
    """Read the column `node.slots`."""
    slots: dict[str, int] = loads(written)
    return slots


def _offers(inventory: Inventory, slots: Mapping[str, int]) -> Iterable[_Offer]:
    for gpu in inventory.gpus:
        shares = slots.get(gpu.uuid, slots.get(ALL_GPUS, 0))
        whole = _whole(gpu)
        if gpu.mig_mode:
            yield from _instances(gpu, whole)
        elif shares:
            for part in range(shares):
                yield replace(whole, kind="slot", part=part, milli=share_milli(1, shares))
        else:
            yield whole


def _instances(gpu: Gpu, whole: _Offer) -> Iterable[_Offer]:
    counts: Counter[str] = Counter()
    for one in sorted(gpu.mig, key=lambda one: one.uuid):
        yield replace(
            whole,
            kind="mig",
            device=one.uuid,
            part=counts[one.profile],
            profile=one.profile,
            milli=share_milli(one.slices, max(one.slices, gpu.mig_slices_max)),
            memory_mib=one.memory_mib,
        )
        counts[one.profile] += 1


def _whole(gpu: Gpu) -> _Offer:
    return _Offer(
        kind="gpu",
        device=gpu.uuid,
        gpu=gpu.uuid,
        part=0,
        profile="",
        milli=MILLI_PER_GPU,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        island=gpu.island,
        numa=gpu.numa,
        seen=gpu.seen,
    )


def _refuse_strangers(connection: Connection, node_id: str, inventory: Inventory) -> None:
    uuids = [gpu.uuid for gpu in inventory.gpus] + [one.uuid for gpu in inventory.gpus for one in gpu.mig]
    if len(set(uuids)) < len(uuids):
        raise Problem(Code.INVALID_INPUT, "inventory.gpus: the same UUID twice")
    elsewhere = select(ATOM.c.device, NODE.c.name).join(NODE, NODE.c.id == ATOM.c.node_id)
    named = ATOM.c.device.in_(uuids) | ATOM.c.gpu.in_(uuids)
    taken = connection.execute(elsewhere.where(named, ATOM.c.node_id != node_id, ATOM.c.listed)).first()
    if taken is not None:
        raise Problem(Code.CONFLICT, f"{taken.device} is already reported by node {taken.name!r}")
