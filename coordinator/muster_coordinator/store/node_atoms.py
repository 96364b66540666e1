"""What the rows of a node's atoms and holds make of its bookings: what else is taken, and what may not be booked."""

from collections import defaultdict
from dataclasses import replace

from sqlalchemy import RowMapping

from muster_coordinator.core.model import Booked


def of_one_kind(atom_rows: list[RowMapping], booked: list[Booked]) -> list[Booked]:
    """Let a booking of one kind of a GPU's atoms stand for all other kinds: it offers one at a time."""
    kinds: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for atom in atom_rows:
        kinds[atom["gpu"]][atom["kind"]] |= 1 << atom["number"]
    mixed = [list(masks.values()) for masks in kinds.values() if len(masks) > 1]
    if not mixed:
        return booked
    spread: list[Booked] = []
    for one in booked:
        mask = one.mask
        for masks in mixed:
            for own in masks:
                if one.mask & own:
                    mask |= sum(masks) & ~own
        spread.append(replace(one, mask=mask))
    return spread


def held_by_cause(atom_rows: list[RowMapping], hold_rows: list[RowMapping]) -> dict[str, int]:
    """Return the atoms that each cause holds: of single devices, of a GPU with all its parts, or of the whole node."""
    by_device: defaultdict[str, int] = defaultdict(int)
    everything = lost = 0
    for atom in atom_rows:
        bit = 1 << atom["number"]
        for device in {atom["device"], atom["gpu"]}:
            by_device[device] |= bit  # what holds a GPU holds every part of it
        everything |= bit
        lost |= 0 if atom["seen"] else bit
    held = {"deviceLost": lost} if lost else {}
    for hold in hold_rows:
        mask = by_device[hold["device"]] if hold["device"] else everything
        held[hold["cause"]] = held.get(hold["cause"], 0) | mask
    return held
