"""A pool at one version: what a plan is made from. Changing one returns another."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from muster_coordinator.core.model import Atom, Booked, Node, Shape
from muster_shared.time import Window

FOREVER_MS = 1 << 62
"""The end of a hold that nobody can date: later than any window."""


class NodeView:
    """A node with what the planner asks again and again worked out once."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.held_mask = 0
        for mask in node.held.values():
            self.held_mask |= mask

    @cached_property
    def atoms_mask(self) -> int:
        """Every atom of the node."""
        return sum(1 << atom.number for atom in self.node.atoms)

    @cached_property
    def _suitable(self) -> dict[tuple[str, str | None, int], int]:
        return {}

    def suitable(self, shape: Shape) -> int:
        """Return the atoms of the asked kind, model and memory, whatever their state."""
        key = (shape.kind, shape.model, shape.memory_mib)
        mask = self._suitable.get(key)
        if mask is None:
            mask = sum(1 << atom.number for atom in self.node.atoms if _suits(atom, shape))
            self._suitable[key] = mask
        return mask

    @cached_property
    def islands(self) -> tuple[int, ...]:
        """NVLink islands as masks, smallest first; equal sizes in the order of their atoms."""
        masks: dict[int, int] = {}
        for atom in self.node.atoms:
            masks[atom.island] = masks.get(atom.island, 0) | 1 << atom.number
        return tuple(sorted(masks.values(), key=lambda mask: (mask.bit_count(), mask)))

    def free(self, window: Window) -> int:
        """Return the atoms that nobody has booked for any part of the window, held ones included."""
        mask = self.atoms_mask
        for booked in self.node.booked:
            if booked.start_ms >= window.end_ms:
                break
            if booked.end_ms > window.start_ms:
                mask &= ~booked.mask
        return mask

    def free_again_ms(self, wanted: int, count: int, window: Window) -> int | None:
        """Return when bookings that overlap the window leave `count` of the `wanted` atoms, or None if never."""
        ends = sorted(
            booked.end_ms
            for booked in self.node.booked
            if booked.start_ms < window.end_ms and booked.end_ms > window.start_ms
        )
        for end_ms in ends:
            if end_ms >= FOREVER_MS:
                return None
            later = Window(end_ms, end_ms + 1)
            if (self.free(later) & wanted).bit_count() >= count:
                return end_ms
        return None


def _suits(atom: Atom, shape: Shape) -> bool:
    if atom.kind != shape.kind or atom.memory_mib < shape.memory_mib:
        return False
    return shape.model is None or shape.model.casefold() in atom.model.casefold()


@dataclass(frozen=True)
class Snapshot:
    """All nodes of one pool, by id."""

    pool_id: str
    version: int
    views: Mapping[str, NodeView]

    @classmethod
    def of(cls, pool_id: str, version: int, nodes: Iterable[Node]) -> "Snapshot":
        """Build one from nodes in any order: every answer is independent of it."""
        ordered = sorted(nodes, key=lambda node: node.id)
        return cls(pool_id, version, {node.id: NodeView(node) for node in ordered})

    def without(self, reservation_id: str) -> "Snapshot":
        """Return the pool as if this reservation had booked nothing: its own atoms count as free."""
        views = dict(self.views)
        for node_id, view in self.views.items():
            others = tuple(one for one in view.node.booked if one.reservation_id != reservation_id)
            if len(others) < len(view.node.booked):
                views[node_id] = NodeView(replace(view.node, booked=others))
        return replace(self, views=views)

    def with_booking(self, node_id: str, booked: Booked) -> "Snapshot":
        """Return the pool with one more booking."""
        node = self.views[node_id].node
        joined = tuple(sorted((*node.booked, booked), key=lambda one: (one.start_ms, one.end_ms, one.mask)))
        return replace(self, views={**self.views, node_id: NodeView(replace(node, booked=joined))})
