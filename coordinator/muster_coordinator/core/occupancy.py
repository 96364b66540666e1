"""When which atoms of a pool are booked: buckets of time, each one integer that has a lane of bits for every node.

A plan asks every node the same question about one window. Bucket by bucket the answer is a bitwise "or" of whole
pools, which costs what it costs to read the memory; only the two buckets that a window cuts are looked at booking by
booking. Exact: an edge of a bucket is never taken for an edge of a booking.

Source: facts on simulation, "Calendar, 200,000 bookings", structures A and B.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster_coordinator.core.model import Booked
from muster_shared.time import MS_MAX, Window

SPLIT_AT: Final = 1_024
"""Bookings that begin or end inside one bucket before it is split: as many are looked at one by one for each edge."""

_BLOCK: Final = 16  # buckets whose sum is kept: a window of a year is then some dozen steps

Lanes = int
"""One integer for a whole pool: node number n owns the bits from n * lane_bits on."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is booked between two instants."""

    booked: Lanes  # for any part of it
    through: Lanes  # by bookings that last from its beginning to its end
    partial: Mapping[int, tuple[Booked, ...]]  # those that begin or end inside it, by the number of their node
    partials: int  # how many of them


class Occupancy:
    """The bookings of a pool over all time. Never changes; a change returns another that shares what is equal."""

    def __init__(self, lane_bits: int, nodes: int, edges: tuple[int, ...], buckets: tuple[Bucket, ...]) -> None:
        """Use `of`, `changed` or `since`.

        Args:
            lane_bits: Bits of each node, a multiple of 64.
            nodes: How many nodes.
            edges: Where the buckets begin, rising, ms UTC; the first is 0. The last bucket never ends.
            buckets: As many as edges.
        """
        self.lane_bits: Final = lane_bits
        self.nodes: Final = nodes
        self._edges = edges
        self._buckets = buckets
        self._blocks: dict[int, Lanes] = {}

    @classmethod
    def of(cls, lane_bits: int, booked: Sequence[Sequence[Booked]]) -> "Occupancy":
        """Build one from the bookings of every node, in the order of their numbers.

        Cost: linear in bookings times the buckets that they touch.
        """
        edges = _edges_for(booked)
        writers = [_Writer(lane_bits, len(booked)) for _ in edges]
        for number, bookings in enumerate(booked):
            for one in bookings:
                first, last = _touched(edges, one)
                for at in range(first, last):
                    writers[at].add(number, one, is_through=_spans(edges, at, one))
        return cls(lane_bits, len(booked), edges, tuple(writer.bucket() for writer in writers))

    def during(self, window: Window) -> Lanes:
        """Return the atoms that are booked for any part of a window."""
        first = bisect_right(self._edges, window.start_ms) - 1
        last = bisect_left(self._edges, window.end_ms) - 1
        booked = self._cut(first, window)
        if last > first:
            booked |= self._cut(last, window) | self._between(first + 1, last)
        return booked

    def changed(self, nodes: Mapping[int, tuple[Sequence[Booked], Sequence[Booked]]]) -> "Occupancy":
        """Return the bookings after some nodes changed theirs.

        Args:
            nodes: By number: what was booked there, and what is now.
        """
        touched: dict[int, dict[int, Sequence[Booked]]] = {}
        for number, (before, after) in nodes.items():
            for one in _differing(before, after):
                for at in range(*_touched(self._edges, one)):
                    touched.setdefault(at, {})[number] = after
        buckets = list(self._buckets)
        for at, changes in touched.items():
            buckets[at] = self._revised(at, changes)
        answer = Occupancy(self.lane_bits, self.nodes, self._edges, tuple(buckets))
        answer._blocks = {at: lanes for at, lanes in self._blocks.items() if not _holds(at, touched)}
        return answer._split(touched)

    def since(self, now_ms: int) -> "Occupancy":
        """Forget the buckets that ended before `now_ms`: no window begins in them any more."""
        past = bisect_right(self._edges, now_ms) - 1
        if past < 1:
            return self
        return Occupancy(self.lane_bits, self.nodes, (0, *self._edges[past + 1 :]), self._buckets[past:])

    def edges_after(self, instant_ms: int) -> tuple[int, ...]:
        """Return the instants after this one at which a bucket begins, rising."""
        return self._edges[bisect_right(self._edges, instant_ms) :]

    def inside(self, instant_ms: int) -> tuple[list[int], list[int]]:
        """Return when bookings begin, and when they end, inside the bucket that an instant lies in; each rising."""
        at = bisect_right(self._edges, instant_ms) - 1
        from_ms = self._edges[at]
        to_ms = self._edges[at + 1] if at + 1 < len(self._edges) else MS_MAX
        bookings = [one for bookings in self._buckets[at].partial.values() for one in bookings]
        starts = {one.start_ms for one in bookings if from_ms < one.start_ms < to_ms}
        ends = {one.end_ms for one in bookings if from_ms < one.end_ms < to_ms}
        return sorted(starts), sorted(ends)

    def _cut(self, at: int, window: Window) -> Lanes:
        bucket = self._buckets[at]
        end_ms = self._edges[at + 1] if at + 1 < len(self._edges) else None
        if not bucket.partials or (
            window.start_ms <= self._edges[at] and end_ms is not None and end_ms <= window.end_ms
        ):
            return bucket.booked
        lanes = bytearray(self.nodes * self.lane_bits // 8)
        width, start_ms, until_ms = self.lane_bits // 8, window.start_ms, window.end_ms
        for number, bookings in bucket.partial.items():
            mask = 0
            for one in bookings:
                if one.start_ms < until_ms and one.end_ms > start_ms:
                    mask |= one.mask
            if mask:
                lanes[number * width : (number + 1) * width] = mask.to_bytes(width, "little")
        return bucket.through | int.from_bytes(lanes, "little")

    def _between(self, first: int, last: int) -> Lanes:
        """Return what is booked in the whole buckets from `first` on, before `last`."""
        booked = 0
        at = first
        while at < last:
            if at % _BLOCK == 0 and at + _BLOCK <= last:
                if at not in self._blocks:
                    lanes = 0
                    for bucket in self._buckets[at : at + _BLOCK]:
                        lanes |= bucket.booked
                    self._blocks[at] = lanes
                booked |= self._blocks[at]
                at += _BLOCK
            else:
                booked |= self._buckets[at].booked
                at += 1
        return booked

    def _revised(self, at: int, changes: Mapping[int, Sequence[Booked]]) -> Bucket:
        """Return a bucket in which these nodes have these bookings."""
        writer = _Writer(self.lane_bits, self.nodes)
        for number, bookings in changes.items():
            for one in bookings:
                first, last = _touched(self._edges, one)
                if first <= at < last:
                    writer.add(number, one, is_through=_spans(self._edges, at, one))
        new, old = writer.bucket(), self._buckets[at]
        others = ~_lanes_of(self.lane_bits, self.nodes, changes)
        kept = {number: one for number, one in old.partial.items() if number not in changes}
        partial = {**kept, **new.partial}
        return Bucket(
            old.booked & others | new.booked,
            old.through & others | new.through,
            partial,
            sum(map(len, partial.values())),
        )

    def _split(self, touched: Iterable[int]) -> "Occupancy":
        """Return the same bookings with the buckets that have become too full split in two."""
        full = [at for at in touched if self._buckets[at].partials > 2 * SPLIT_AT]
        answer = self
        for at in sorted(full, reverse=True):
            answer = answer._split_one(at)
        return answer

    def _split_one(self, at: int) -> "Occupancy":
        bucket = self._buckets[at]
        start_ms = self._edges[at]
        end_ms = self._edges[at + 1] if at + 1 < len(self._edges) else None
        inside = sorted(
            instant
            for bookings in bucket.partial.values()
            for one in bookings
            for instant in (one.start_ms, one.end_ms)
            if start_ms < instant and (end_ms is None or instant < end_ms)
        )
        middle = inside[len(inside) // 2]
        edges = (*self._edges[: at + 1], middle, *self._edges[at + 1 :])
        halves: list[Bucket] = []
        for half in (at, at + 1):
            writer = _Writer(self.lane_bits, self.nodes)
            for number, bookings in bucket.partial.items():
                for one in bookings:
                    first, last = _touched(edges, one)
                    if first <= half < last:
                        writer.add(number, one, is_through=_spans(edges, half, one))
            new = writer.bucket()
            halves.append(Bucket(new.booked | bucket.through, new.through | bucket.through, new.partial, new.partials))
        buckets = (*self._buckets[:at], *halves, *self._buckets[at + 1 :])
        return Occupancy(self.lane_bits, self.nodes, edges, buckets)


class _Writer:
    """One bucket in the making: cheap to write node by node, where an integer would be copied each time."""

    def __init__(self, lane_bits: int, nodes: int) -> None:
        self._width = lane_bits // 8
        self._through = bytearray(nodes * self._width)
        self._partial_lanes = bytearray(nodes * self._width)
        self._partial: dict[int, tuple[Booked, ...]] = {}
        self._partials = 0

    def add(self, number: int, one: Booked, *, is_through: bool) -> None:
        lanes = self._through if is_through else self._partial_lanes
        at = number * self._width
        mask = int.from_bytes(lanes[at : at + self._width], "little") | one.mask
        lanes[at : at + self._width] = mask.to_bytes(self._width, "little")
        if not is_through:
            self._partial[number] = (*self._partial.get(number, ()), one)
            self._partials += 1

    def bucket(self) -> Bucket:
        through = int.from_bytes(self._through, "little")
        booked = through | int.from_bytes(self._partial_lanes, "little")
        return Bucket(booked, through, self._partial, self._partials)


def _edges_for(booked: Sequence[Sequence[Booked]]) -> tuple[int, ...]:
    """Choose edges so that few bookings begin or end inside any bucket: where many do at one instant, it is an edge."""
    counts: dict[int, int] = {}
    for bookings in booked:
        for one in bookings:
            counts[one.start_ms] = counts.get(one.start_ms, 0) + 1
            counts[one.end_ms] = counts.get(one.end_ms, 0) + 1
    edges = [0]
    inside = 0
    for instant in sorted(counts):
        if inside + counts[instant] > SPLIT_AT and instant > 0:
            edges.append(instant)
            inside = 0
        else:
            inside += counts[instant]
    return tuple(edges)


def _touched(edges: Sequence[int], one: Booked) -> tuple[int, int]:
    """Return the first bucket that a booking touches, and the one after the last."""
    return bisect_right(edges, max(0, one.start_ms)) - 1, bisect_left(edges, one.end_ms)


def _spans(edges: Sequence[int], at: int, one: Booked) -> bool:
    # The last bucket has no end that a booking could reach.
    return one.start_ms <= edges[at] and at + 1 < len(edges) and edges[at + 1] <= one.end_ms


def _differing(before: Sequence[Booked], after: Sequence[Booked]) -> list[Booked]:
    former, latter = set(before), set(after)
    return [one for one in (*before, *after) if one not in former or one not in latter]


def _lanes_of(lane_bits: int, nodes: int, numbers: Iterable[int]) -> Lanes:
    """Return whole lanes of some nodes."""
    width = lane_bits // 8
    lanes = bytearray(nodes * width)
    for number in numbers:
        lanes[number * width : (number + 1) * width] = b"\xff" * width
    return int.from_bytes(lanes, "little")


def _holds(block: int, touched: Iterable[int]) -> bool:
    return any(block <= at < block + _BLOCK for at in touched)
