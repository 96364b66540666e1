"""What a placement may be, by trying everything: slow, and made of nothing that the planner is made of."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from muster_coordinator.core.model import Atom, Entry, Node, Request, Shape
from muster_shared.devices import atom_numbers
from muster_shared.time import Window

GROUPING_VALUES = frozenset({"A", "B", "C", "r1", "r2", "r3"})
"""Values that form a group. Whatever else a small pool shows under a key is blank or zero."""

Domains = dict[tuple[str, ...], dict[str, list[Node]]]
"""Nodes by the values on which the whole gang would agree, then by the value of their segment."""


def held_atoms(node: Node) -> set[int]:
    """Return the atoms that something holds."""
    return {number for mask in node.held.values() for number in atom_numbers(mask)}


def booked_atoms(node: Node, window: Window) -> set[int]:
    """Return the atoms that somebody has booked for an instant of the window."""
    return {
        number
        for one in node.booked
        if max(one.start_ms, window.start_ms) < min(one.end_ms, window.end_ms)
        for number in atom_numbers(one.mask)
    }


def free_atoms(node: Node, window: Window) -> set[int]:
    """Return the atoms that nothing holds and nobody has booked at any instant of the window."""
    return {atom.number for atom in node.atoms} - held_atoms(node) - booked_atoms(node, window)


def suits(atom: Atom, entry: Entry) -> bool:
    """Tell whether the atom is what the entry asks for."""
    return (
        atom.kind == entry.kind
        and (entry.model is None or entry.model.lower() in atom.model.lower())
        and atom.memory_mib >= entry.memory_mib
        and (entry.profile is None or atom.profile == entry.profile)
    )


def belongs_together(atoms: Sequence[Atom], entry: Entry) -> bool:
    """Tell whether the atoms share what the entry wants shared."""
    match entry.topology:
        case "any":
            return True
        case "nvlink-all":
            return all(atom.kind == "gpu" for atom in atoms) and len({atom.island for atom in atoms}) == 1
        case "numa":
            return all(atom.numa is not None for atom in atoms) and len({atom.numa for atom in atoms}) == 1


def choices(node: Node, free: set[int], entries: Sequence[Entry]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield every way to serve all entries from free atoms, none of them twice."""
    if not entries:
        yield ()
        return
    first, *rest = entries
    suitable = [atom for atom in node.atoms if atom.number in free and suits(atom, first)]
    for chosen in combinations(suitable, first.count):
        if belongs_together(chosen, first):
            numbers = tuple(atom.number for atom in chosen)
            yield from ((numbers, *others) for others in choices(node, free - set(numbers), rest))


def serves(node: Node, free: set[int], entries: Sequence[Entry]) -> bool:
    """Tell whether these atoms of a node hold everything that is asked."""
    return next(choices(node, free, entries), None) is not None


def is_selected(node: Node, shape: Shape) -> bool:
    """Tell whether the node has every label of the selector."""
    return all(node.labels.get(key) == value for key, value in shape.selector)


def can_give(node: Node, request: Request) -> bool:
    """Tell whether a node could take its part of a gang in the window of a request."""
    is_open = node.intent == "schedulable" and not node.leased and node.silent_since_ms is None
    free = free_atoms(node, request.window)
    return is_open and is_selected(node, request.shape) and serves(node, free, request.shape.entries)


def could_ever_give(node: Node, request: Request) -> bool:
    """Tell whether it could if it were open, healthy and empty."""
    atoms = {atom.number for atom in node.atoms}
    return is_selected(node, request.shape) and serves(node, atoms, request.shape.entries)


def domains(able: Iterable[Node], request: Request, keys: Sequence[str]) -> Domains:
    """Sort nodes by the values of the keys, then of the segment's; those that lack one are in no domain."""
    segment_key = request.grouping.segment_key
    found: Domains = {}
    for node in able:
        values = tuple(node.labels.get(key, "") for key in keys)
        segment = node.labels.get(segment_key, "") if segment_key else "A"
        if {*values, segment} <= GROUPING_VALUES:
            found.setdefault(values, {}).setdefault(segment, []).append(node)
    return found


def size_max(groups: Domains, request: Request) -> int:
    """Return the most nodes that one domain gives together, in whole segments."""
    whole = request.grouping.segment_size or 1
    return max((sum(len(nodes) // whole * whole for nodes in parts.values()) for parts in groups.values()), default=0)


def levels(request: Request) -> list[tuple[str, ...]]:
    """Return the keys to agree on: each preferred one beside the required, then the required alone."""
    grouping = request.grouping
    return [*((*grouping.required, key) for key in grouping.preferred), grouping.required]


def best_level(nodes: Iterable[Node], request: Request) -> tuple[str, ...] | None:
    """Return the keys of the first level on which the gang fits; None where it fits on none."""
    able = [node for node in nodes if can_give(node, request)]
    fitting = (keys for keys in levels(request) if size_max(domains(able, request, keys), request) >= request.size)
    return next(fitting, None)
