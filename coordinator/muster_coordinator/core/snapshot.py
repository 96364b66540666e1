"""A pool at one version: what a plan is made from. Changing one returns another that shares what is equal."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol, Self, TypeVar

from muster_coordinator.core.layout import Layout, layout_of
from muster_coordinator.core.model import Booked, Node
from muster_coordinator.core.occupancy import Lanes, Occupancy
from muster_shared.time import MS_MAX, Window

FOREVER_MS: Final = 1 << 62
"""The end of a hold that nobody can date: later than any window."""

_LANE_STEP: Final = 64  # bits: a lane is read as machine words
_ANSWERS_MAX: Final = 256  # of shapes that a pool is asked about; each costs some words a node
_CHANGES_KEPT: Final = 256  # changes of facts that an old answer is carried over; beyond, it is worked out anew


class Answer(Protocol):
    """What is worked out once for a pool, and carried on when some of its nodes change."""

    def revised(self, snapshot: "Snapshot", changed: Iterable[int]) -> Self:
        """Return the answer for a pool in which the nodes of these numbers have changed."""
        ...


A = TypeVar("A", bound=Answer)


class NodeView:
    """A node with what the planner asks again and again worked out once."""

    def __init__(self, node: Node, layout: Layout | None = None) -> None:
        self.node = node
        self.layout: Final = layout or layout_of(node.atoms)
        self.held_mask = 0
        for mask in node.held.values():
            self.held_mask |= mask

    @cached_property
    def place(self) -> tuple[tuple[bool, int, str], ...]:
        """Where the node stands among others by its name, numbers in it read as numbers: a2 before a10."""
        parts = (part for part in re.split(r"(\d+)", self.node.name) if part)
        return tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts)

    @property
    def atoms_mask(self) -> int:
        """Every atom of the node."""
        return self.layout.mask

    @property
    def is_sound(self) -> bool:
        """Is nothing on hold here, and does the node not come and go? Others are the last choice."""
        return not self.held_mask and not self.node.flapping_until_ms

    def differs_in_facts(self, other: "NodeView") -> bool:
        """Tell whether anything but the bookings is different."""
        return replace(self.node, booked=()) != replace(other.node, booked=())

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

    def gaps(self, mask: int, window: Window) -> tuple[int | None, int | None]:
        """Return how long these atoms are idle before the window, and after it, in ms; None where nothing is booked.

        The atoms must be free for the window.
        """
        ended_ms, next_ms = -1, FOREVER_MS
        for one in self.node.booked:
            if one.mask & mask:
                if one.end_ms <= window.start_ms:
                    ended_ms = max(ended_ms, one.end_ms)
                elif one.start_ms < next_ms:
                    next_ms = one.start_ms
        return (
            None if ended_ms < 0 else window.start_ms - ended_ms,
            None if next_ms == FOREVER_MS else next_ms - window.end_ms,
        )

    def instants_after(self, instant_ms: int) -> Sequence[int]:
        """Return the later instants at which bookings of the node begin or end, rising."""
        instants, _ = self._steps
        return instants[bisect_right(instants, instant_ms) :]

    def free_again_ms(self, usable: int, fits: Callable[[int], int], window: Window) -> int | None:
        """Return when a window of the same length could first begin later.

        Args:
            usable: Atoms that would do if they were free.
            fits: What the node would give of its bookable atoms; 0 for nothing.
            window: That is too early.

        Returns:
            None where no end of a booking helps. Cost: in instants at which bookings of the node begin or end.
        """
        duration_ms = window.duration_ms
        for instant in self.instants_after(window.start_ms):
            # A hold without a date ends later than any window: the calendar is over before.
            if instant + duration_ms > MS_MAX:
                return None
            if fits(self.free(Window(instant, instant + duration_ms)) & usable):
                return instant
        return None


@dataclass(frozen=True)
class Snapshot:
    """All nodes of one pool, by id. A node's number is its place in that order."""

    pool_id: str
    version: int
    views: Mapping[str, NodeView]
    occupancy: Occupancy = field(repr=False, compare=False)
    _numbers: Mapping[str, int] = field(repr=False, compare=False)
    _answers: dict[Hashable, tuple[int, Any]] = field(
        default_factory=dict[Hashable, tuple[int, Any]], repr=False, compare=False
    )
    _changes: tuple[tuple[int, ...], ...] = field(default=(), repr=False, compare=False)
    _changes_before: int = field(default=0, repr=False, compare=False)

    @classmethod
    def of(cls, pool_id: str, version: int, nodes: Iterable[Node]) -> "Snapshot":
        """Build one from nodes in any order: every answer is independent of it."""
        return cls._built(pool_id, version, [NodeView(node) for node in nodes])

    @classmethod
    def _built(cls, pool_id: str, version: int, nodes: Iterable[NodeView]) -> "Snapshot":
        views = {view.node.id: view for view in sorted(nodes, key=lambda view: view.node.id)}
        bits = max((view.atoms_mask.bit_length() for view in views.values()), default=0)
        lane_bits = _LANE_STEP * max(1, -(-bits // _LANE_STEP))
        occupancy = Occupancy.of(lane_bits, [_within_lane(view) for view in views.values()])
        return cls(pool_id, version, views, occupancy, {node_id: number for number, node_id in enumerate(views)})

    @cached_property
    def ordered(self) -> tuple[NodeView, ...]:
        """The nodes by number."""
        return tuple(self.views.values())

    def number(self, node_id: str) -> int | None:
        """Return the number of a node; None where the pool has no such node."""
        return self._numbers.get(node_id)

    def masks(self, lanes: Lanes) -> Sequence[int]:
        """Return the mask of each node, by number."""
        width = self.occupancy.lane_bits // 8
        written = lanes.to_bytes(width * len(self.views), "little")
        if width == _LANE_STEP // 8:
            return memoryview(written).cast("Q")
        return [int.from_bytes(written[at : at + width], "little") for at in range(0, len(written), width)]

    def once(self, key: Hashable, work_out: Callable[["Snapshot"], A]) -> A:
        """Ask what no booking changes: it is worked out once, and carried on from pool to pool.

        Args:
            key: Names the question.
            work_out: Looks at nodes, never at their bookings.
        """
        changes_seen = self._changes_before + len(self._changes)
        known = self._answers.get(key)
        if known is not None and known[0] == changes_seen:
            kept: A = known[1]
            return kept
        if known is not None and known[0] >= self._changes_before:
            since = self._changes[known[0] - self._changes_before :]
            former: A = known[1]
            answer = former.revised(self, sorted({number for change in since for number in change}))
        else:
            answer = work_out(self)
        for oldest in list(self._answers)[: max(0, len(self._answers) + 1 - _ANSWERS_MAX)]:
            self._answers.pop(oldest, None)
        self._answers[key] = (changes_seen, answer)
        return answer

    def with_nodes(self, version: int, nodes: Iterable[Node], now_ms: int = 0) -> "Snapshot":
        """Return the pool at a newer version, in which some nodes are different or new.

        Args:
            version: Of the pool.
            nodes: As they are now.
            now_ms: Windows that begin earlier will not be asked for.
        """
        changed = {node.id: NodeView(node) for node in nodes}
        widest = (1 << self.occupancy.lane_bits) - 1
        if changed.keys() - self.views.keys() or any(view.atoms_mask > widest for view in changed.values()):
            return self._built(self.pool_id, version, {**self.views, **changed}.values())
        return self._with(version, changed, now_ms)

    def without_nodes(self, node_ids: Iterable[str]) -> "Snapshot":
        """Return the pool after some nodes have left it."""
        gone = frozenset(node_ids)
        left = (view for node_id, view in self.views.items() if node_id not in gone)
        return self._built(self.pool_id, self.version, left)

    def _with(self, version: int, changed: Mapping[str, NodeView], now_ms: int = 0) -> "Snapshot":
        numbers = self._numbers
        occupancy = self.occupancy.changed(
            {numbers[id_]: (_within_lane(self.views[id_]), _within_lane(view)) for id_, view in changed.items()}
        )
        facts = tuple(numbers[id_] for id_, view in changed.items() if view.differs_in_facts(self.views[id_]))
        changes = (*self._changes, facts) if facts else self._changes
        return Snapshot(
            self.pool_id,
            version,
            {**self.views, **changed},
            occupancy.since(now_ms),
            numbers,
            dict(self._answers) if facts else self._answers,
            changes[-_CHANGES_KEPT:],
            self._changes_before + max(0, len(changes) - _CHANGES_KEPT),
        )

    def without(self, reservation_id: str, node_ids: Iterable[str]) -> "Snapshot":
        """Return the pool as if this reservation had booked nothing on these nodes: its own atoms count as free."""
        changed: dict[str, NodeView] = {}
        for node_id in node_ids:
            view = self.views.get(node_id)
            if view is not None:
                others = tuple(one for one in view.node.booked if one.reservation_id != reservation_id)
                changed[node_id] = NodeView(replace(view.node, booked=others), view.layout)
        return self._with(self.version, changed)

    def with_booking(self, node_id: str, booked: Booked) -> "Snapshot":
        """Return the pool with one more booking."""
        return self.with_bookings([(node_id, booked)], self.version)

    def with_bookings(self, bookings: Iterable[tuple[str, Booked]], version: int) -> "Snapshot":
        """Return the pool at a version with more bookings on these nodes."""
        changed: dict[str, NodeView] = {}
        for node_id, booked in bookings:
            view = changed.get(node_id) or self.views[node_id]
            joined = tuple(sorted((*view.node.booked, booked), key=_by_start))
            changed[node_id] = NodeView(replace(view.node, booked=joined), view.layout)
        return self._with(version, changed)


def _by_start(one: Booked) -> tuple[int, int, int, str]:
    return one.start_ms, one.end_ms, one.mask, one.reservation_id


def _within_lane(view: NodeView) -> Sequence[Booked]:
    """Return a node's bookings; atoms that it no longer has are nobody's lane."""
    known = view.atoms_mask
    if all(not one.mask & ~known for one in view.node.booked):
        return view.node.booked
    return [replace(one, mask=one.mask & known) for one in view.node.booked if one.mask & known]
