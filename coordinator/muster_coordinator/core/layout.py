"""What nodes with the same devices have in common: which atoms answer an entry, and which belong together."""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final

from muster_coordinator.core.model import Atom, Entry
from muster_shared.devices import DeviceClass

_LAYOUTS_MAX: Final = 4_096  # a fleet has some dozen kinds of hosts, times what is broken on them


class Layout:
    """The atoms of a node without their names. Equal nodes share one, so that it is worked out once."""

    def __init__(self, atoms: tuple[Atom, ...]) -> None:
        """Use `layout_of`: two layouts of equal atoms are one object."""
        self.atoms: Final = atoms
        self.mask: Final = sum(1 << atom.number for atom in atoms)
        self.gpus: Final = _bundles((atom.gpu, atom.number) for atom in atoms)
        self.numa_nodes: Final = _bundles((atom.numa, atom.number) for atom in atoms if atom.numa is not None)
        self.islands: Final = _bundles((atom.island, atom.number) for atom in atoms if atom.kind == "gpu")
        self._suitable: dict[Entry, int] = {}

    def suitable(self, entry: Entry) -> int:
        """Return the atoms of the asked kind, model, memory and profile, whatever their state."""
        mask = self._suitable.get(entry)
        if mask is None:
            mask = self._suitable[entry] = sum(1 << atom.number for atom in self.atoms if _suits(atom, entry))
        return mask

    def packed_by(self, kind: DeviceClass) -> tuple[int, ...]:
        """Return what should stay whole when atoms of a kind are given: NVLink islands, or the GPUs that are shared."""
        return self.islands if kind == "gpu" else self.gpus

    def milli(self, mask: int) -> int:
        """Return how much GPU these atoms are, in milli-GPU."""
        return sum(atom.milli for atom in self.atoms if mask >> atom.number & 1)

    def whole_gpus(self, mask: int) -> int:
        """Return the number of physical GPUs of which any of these atoms is a part."""
        return sum(1 for gpu in self.gpus if gpu & mask)


def layout_of(atoms: Iterable[Atom]) -> Layout:
    """Return the layout of a node's atoms; equal but for their UUIDs, they have the same one."""
    ordinals: dict[str, int] = {}
    nameless = (
        replace(atom, device="", gpu=str(ordinals.setdefault(atom.gpu, len(ordinals))))
        for atom in sorted(atoms, key=lambda one: one.number)
    )
    return _layout(tuple(nameless))


@lru_cache(maxsize=_LAYOUTS_MAX)
def _layout(nameless: tuple[Atom, ...]) -> Layout:
    return Layout(nameless)


def _bundles(pairs: Iterable[tuple[object, int]]) -> tuple[int, ...]:
    """Return the atoms of each value as masks, smallest first; equal sizes in the order of their atoms."""
    masks: dict[object, int] = {}
    for value, number in pairs:
        masks[value] = masks.get(value, 0) | 1 << number
    return tuple(sorted(masks.values(), key=lambda mask: (mask.bit_count(), mask)))


def _suits(atom: Atom, entry: Entry) -> bool:
    if atom.kind != entry.kind or atom.memory_mib < entry.memory_mib:
        return False
    if entry.profile is not None and atom.profile != entry.profile:
        return False
    return entry.model is None or entry.model.casefold() in atom.model.casefold()
