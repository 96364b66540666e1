"""Which atoms of one node: the same ones for the whole window, from the smallest island that fits."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, product

from muster_coordinator.core.layout import Layout
from muster_coordinator.core.model import Entry
from muster_shared.devices import atom_numbers

_REMEMBERED = 1 << 14  # nodes are alike: a pool of thousands shows some hundred different masks


@lru_cache(maxsize=_REMEMBERED)
def pick_atoms(bookable: int, layout: Layout, entries: tuple[Entry, ...]) -> int:
    """Pick the atoms of one node as a mask; 0 where it has not enough to give.

    What must share an island or a NUMA node comes from the smallest one that fits; the rest fills the most broken ones
    first, so that whole ones stay whole. Shared GPUs are filled in the same way. Lowest numbers first: equal input,
    equal answer.

    Args:
        bookable: Atoms that are not on hold, and free for the whole window.
        layout: Of the node.
        entries: What is asked, all of it; no atom serves two.

    Source: design, section 4, step 1. Cost: grows with the islands to the power of the entries that want one.
    """
    wanted = [entry.count for entry in entries]
    for sources in product(*(_sources(bookable, layout, entry) for entry in entries)):
        if _serve(sources, wanted):
            return _taken(bookable, layout, entries, list(sources))
    return 0


def _sources(bookable: int, layout: Layout, entry: Entry) -> list[int]:
    """Return the sets of atoms from one of which an entry can be served, the best first."""
    suitable = bookable & layout.suitable(entry)
    match entry.topology:
        case "any":
            shared: Sequence[int] = (suitable,)
        case "nvlink-all":
            shared = [island & suitable for island in layout.islands]
        case "numa":
            shared = [numa_node & suitable for numa_node in layout.numa_nodes]
    return sorted((mask for mask in shared if mask.bit_count() >= entry.count), key=_fewest_first)


def _serve(sources: Sequence[int], counts: Sequence[int]) -> bool:
    """Can every entry be served from its source, though they may overlap? Source: Hall's theorem."""
    for size in range(1, len(counts) + 1):
        for chosen in combinations(range(len(counts)), size):
            together = 0
            for entry in chosen:
                together |= sources[entry]
            if together.bit_count() < sum(counts[entry] for entry in chosen):
                return False
    return True


def _taken(bookable: int, layout: Layout, entries: Sequence[Entry], sources: list[int]) -> int:
    """Take the atoms entry by entry, and none that a later entry cannot do without."""
    taken = 0
    for at, entry in enumerate(entries):
        left = entry.count
        later, counts = sources[at + 1 :], [one.count for one in entries[at + 1 :]]
        for atom in _most_broken_first(sources[at] & ~taken, bookable, layout, entry):
            without = [source & ~taken & ~atom for source in later]
            if left and _serve(without, counts):
                taken |= atom
                left -= 1
    return taken


def _most_broken_first(source: int, bookable: int, layout: Layout, entry: Entry) -> list[int]:
    """Return the atoms of a source, one by one, those of the bundle with the fewest bookable atoms first."""
    bundles = sorted(layout.packed_by(entry.kind), key=lambda bundle: _fewest_first(bundle & bookable))
    return [1 << number for bundle in bundles for number in atom_numbers(bundle & source)]


def _fewest_first(mask: int) -> tuple[int, int]:
    return mask.bit_count(), mask
