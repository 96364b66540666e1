"""A pool at one version: what a plan is made from. Changing one returns another."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeVar

from muster_coordinator.core.model import Atom, Booked, Node, Shape
from muster_shared.time import MS_MAX, Window

FOREVER_MS: Final = 1 << 62
"""The end of a hold that nobody can date: later than any window."""

A = TypeVar("A")


class NodeView:
    """A node with what the planner asks again and again worked out once."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._suitable: dict[tuple[str, str | None, int], int] = {}
        self.held_mask = 0
        for mask in node.held.values():
            self.held_mask |= mask

    @cached_property
    def atoms_mask(self) -> int:
        """Every atom of the node."""
        return sum(1 << atom.number for atom in self.node.atoms)

    def suitable(self, shape: Shape) -> int:
        """Return the atoms of the asked kind, model and memory, whatever their state."""
        key = (shape.kind, shape.model, shape.memory_mib)
        mask = self._suitable.get(key)
        if mask is None:
            mask = self._suitable[key] = sum(1 << atom.number for atom in self.node.atoms if _suits(atom, shape))
        return mask

    @cached_property
    def islands(self) -> tuple[int, ...]:
        """NVLink islands as masks, smallest first; equal sizes in the order of their atoms."""
        masks: dict[int, int] = {}
        for atom in self.node.atoms:
            masks[atom.island] = masks.get(atom.island, 0) | 1 << atom.number
        return tuple(sorted(masks.values(), key=lambda mask: (mask.bit_count(), mask)))

    @cached_property
    def _steps(self) -> tuple[list[int], list[int]]:
        """Instants at which bookings begin or end, and the atoms booked before the first and from each one on."""
        instants = sorted({instant for one in self.node.booked for instant in (one.start_ms, one.end_ms)})
        masks = [0] * (len(instants) + 1)
        for one in self.node.booked:
            for step in range(bisect_right(instants, one.start_ms), bisect_right(instants, one.end_ms)):
                masks[step] |= one.mask
        return instants, masks

    def free(self, window: Window) -> int:
        """Return the atoms that nobody has booked for any part of the window, held ones included."""
        return self.atoms_mask & ~self._booked(window.start_ms, window.end_ms)

    def _booked(self, start_ms: int, end_ms: int) -> int:
        instants, masks = self._steps
        booked = 0
        # A step that begins with the window's end lies outside it: windows are half open.
        for mask in masks[bisect_right(instants, start_ms) : bisect_left(instants, end_ms) + 1]:
            booked |= mask
        return booked

    @cached_property
    def _edges(self) -> tuple[dict[int, int], dict[int, int]]:
        ends: dict[int, int] = {}
        starts: dict[int, int] = {}
        for one in self.node.booked:
            ends[one.end_ms] = ends.get(one.end_ms, 0) | one.mask
            starts[one.start_ms] = starts.get(one.start_ms, 0) | one.mask
        return ends, starts

    def touching(self, window: Window) -> tuple[int, int]:
        """Return the atoms whose booking ends where the window begins, and those whose booking begins where it ends."""
        ends, starts = self._edges
        return ends.get(window.start_ms, 0), starts.get(window.end_ms, 0)

    def free_again_ms(self, wanted: int, count: int, window: Window) -> int | None:
        """Return when a window of the same length could first begin later on `count` of the `wanted` atoms.

        None where no end of a booking helps. Cost: in instants at which bookings of the node begin or end.
        """
        instants, _ = self._steps
        duration_ms = window.duration_ms
        for instant in instants[bisect_right(instants, window.start_ms) :]:
            if (wanted & ~self._booked(instant, instant + duration_ms)).bit_count() >= count:
                return instant if instant + duration_ms <= MS_MAX else None
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
    _answers: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any], repr=False, compare=False)

    @classmethod
    def of(cls, pool_id: str, version: int, nodes: Iterable[Node]) -> "Snapshot":
        """Build one from nodes in any order: every answer is independent of it."""
        ordered = sorted(nodes, key=lambda node: node.id)
        return cls(pool_id, version, {node.id: NodeView(node) for node in ordered})

    def once(self, question: Callable[["Snapshot", Shape, str | None], A], shape: Shape, topology_key: str | None) -> A:
        """Ask what no booking changes: it is worked out once for this pool and for those made from it.

        Args:
            question: Looks at nodes, never at their bookings.
            shape: What one node must give.
            topology_key: On whose value a gang agrees.
        """
        key = (question, shape, topology_key)
        if key not in self._answers:
            self._answers[key] = question(self, shape, topology_key)
        answer: A = self._answers[key]
        return answer

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
