"""Buckets of equal length over a pool's calendar: what is booked for any part of each, and what is free for all of it.

Every booking is looked at once: it counts from the bucket in which it begins to the one in which it ends, less what an
earlier booking of the same atoms has already been counted for. The cost is that of the bookings, however many buckets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from muster_coordinator.core.model import NOBODY
from muster_coordinator.core.snapshot import NodeView, Snapshot
from muster_coordinator.core.timeline.rollup import takes_work, whole_gpus
from muster_shared.time import Window

if TYPE_CHECKING:
    from muster_coordinator.core.layout import Layout

_Span = tuple[int, int, int]
"""`(start_ms, end_ms, atoms)`: a booking as it is counted."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Buckets of `bucket_ms`, at least 1, from a window's start on; the last one is cut where the window ends."""

    window: Window
    bucket_ms: int

    @property
    def count(self) -> int:
        """How many buckets there are, at least 1."""
        return -(-self.window.duration_ms // self.bucket_ms)

    def buckets(self) -> list[Window]:
        """Return the buckets, rising, each half open."""
        end_ms = self.window.end_ms
        starts = range(self.window.start_ms, end_ms, self.bucket_ms)
        return [Window(start_ms, min(start_ms + self.bucket_ms, end_ms)) for start_ms in starts]


def booked_gpus(snapshot: Snapshot, frame: Frame, now_ms: int) -> list[int]:
    """Return, for each bucket, how many distinct whole GPUs have any booking that overlaps it.

    Args:
        snapshot: The pool. It knows no booking that ended before it was read.
        frame: The buckets.
        now_ms: What somebody has not let go of in time is booked now; nobody can date its end.

    Source: design, section 10. Cost: linear in bookings.
    """
    steps = [0] * (frame.count + 1)
    masks: dict[Layout, int] = {}  # asked once for each kind of node
    for view in snapshot.ordered:
        if view.node.booked:
            if view.layout not in masks:
                masks[view.layout] = whole_gpus(view)
            _count(steps, frame, _spans(view, masks[view.layout], now_ms))
    return list(accumulate(steps[:-1]))


def free_nodes(snapshot: Snapshot, frame: Frame, values: Sequence[str | None], now_ms: int) -> dict[str, list[int]]:
    """Return, for each topology value and each bucket, how many nodes are wholly free for all of it.

    Args:
        snapshot: The pool.
        frame: The buckets.
        values: Of the topology key, by the number of the node; None for what forms no group.
        now_ms: As of `booked_gpus`.

    A node counts while it takes work, offers nothing but whole GPUs, and has none of them on hold, as in the pool's
    rollup. Cost: linear in bookings, and in values times buckets.
    """
    steps: dict[str, list[int]] = {value: [0] * (frame.count + 1) for value in values if value is not None}
    for view, value in zip(snapshot.ordered, values, strict=True):
        if value is None or not _is_sound(view):
            continue
        steps[value][0] += 1
        taken = (
            (start_ms, end_ms, int(bool(atoms))) for start_ms, end_ms, atoms in _spans(view, view.atoms_mask, now_ms)
        )
        _count(steps[value], frame, taken, weight=-1)
    return {value: list(accumulate(changes[:-1])) for value, changes in sorted(steps.items())}


def _is_sound(view: NodeView) -> bool:
    every = view.atoms_mask
    return bool(every) and takes_work(view) and whole_gpus(view) & ~view.held_mask == every


def _spans(view: NodeView, atoms: int, now_ms: int) -> list[_Span]:
    """Return a node's bookings of some atoms, in the order of their starts."""
    booked = view.node.booked
    # An overrun begins at 0, and the bookings are sorted: most nodes are known not to have any at the first look.
    if booked and not booked[0].start_ms and any(one.reservation_id == NOBODY for one in booked):
        return sorted(
            (now_ms, now_ms + 1, one.mask & atoms)
            if one.reservation_id == NOBODY
            else (one.start_ms, one.end_ms, one.mask & atoms)
            for one in booked
        )
    return [(one.start_ms, one.end_ms, one.mask & atoms) for one in booked]


def _count(steps: list[int], frame: Frame, spans: Iterable[_Span], weight: int = 1) -> None:
    """Add the atoms of one node's bookings to the steps between buckets, each atom at most once to a bucket."""
    begin_ms, until_ms, bucket_ms, count = frame.window.start_ms, frame.window.end_ms, frame.bucket_ms, frame.count
    earlier: list[tuple[int, int]] = []  # the bucket up to which atoms have been counted, and the atoms
    reached = 0
    for start_ms, end_ms, atoms in spans:
        if end_ms <= begin_ms or start_ms >= until_ms or not atoms:
            continue
        first = (start_ms - begin_ms) // bucket_ms if start_ms > begin_ms else 0
        last = count if end_ms >= until_ms else -((begin_ms - end_ms) // bucket_ms)
        if first >= reached:
            change = weight * atoms.bit_count()  # written out: this line and the next are most of the time
            steps[first] += change
            steps[last] -= change
            earlier = [(last, atoms)]
        else:
            earlier = [one for one in earlier if one[0] > first]
            _count_rest(steps, earlier, (first, last, atoms), weight)
            earlier.append((last, atoms))
        reached = max(reached, last)


def _count_rest(steps: list[int], earlier: Iterable[tuple[int, int]], span: _Span, weight: int) -> None:
    """Add atoms to the buckets of `(first, last, atoms)` but for what earlier bookings were counted for."""
    first, last, rest = span
    for upto, counted in sorted(earlier, reverse=True):
        again = rest & counted
        if again and upto < last:
            _step(steps, upto, last, weight * again.bit_count())
        rest &= ~again
    _step(steps, first, last, weight * rest.bit_count())


def _step(steps: list[int], first: int, last: int, change: int) -> None:
    steps[first] += change
    steps[last] -= change
