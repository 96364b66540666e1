"""Why there is no gang: every node counted under the one thing that keeps it away, and until when."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import chain, compress, islice
from typing import Final

from muster_coordinator.core.layout import Layout
from muster_coordinator.core.model import Entry, Request
from muster_coordinator.core.placement.atoms import pick_atoms
from muster_coordinator.core.placement.fitting import Fitting, largest
from muster_coordinator.core.placement.reasons import ReasonCode, Refusal, blockers
from muster_coordinator.core.placement.standing import Picks
from muster_coordinator.core.placement.upkeep import Upkeep
from muster_coordinator.core.snapshot import Snapshot

_DATED_MAX: Final = 40
"""Nodes whose calendars are searched for the end of what blocks them: those nearest to a gang, in a large pool."""

_REMEMBERED: Final = 1 << 14  # nodes are alike: a pool of thousands is in some hundred different states


def refusal(snapshot: Snapshot, request: Request, fitting: Fitting) -> Refusal:
    """Say why no gang fits on this level.

    The date of `booked` is the first at which one of the nodes looked at is free for as long again; of a large pool,
    those of the groups that come closest to a gang are looked at.
    """
    standing, grouping = fitting.standing, request.grouping
    codes = _Codes(fitting)
    counts: Counter[ReasonCode] = Counter(standing.closed)
    counts["tooFewPeers"] = sum(fitting.counts.values())
    counts.update(codes.counts)
    # Those that fit and were left out: refused just now, or outside the values that a repair keeps to.
    counts["excluded"] += len(standing.reasons) - counts.total()
    untils = _in_maintenance(snapshot, request, codes, counts)
    if counts["booked"] and (until_ms := _free_again_ms(snapshot, request, fitting, codes)) is not None:
        untils["booked"] = until_ms
    size_max, _ = largest(fitting, request, fitting.counts)
    size_ever, _ = largest(fitting, request, standing.ever)
    return Refusal(
        request.size,
        fitting.keys,
        size_max,
        blockers(counts, untils),
        size_ever,
        grouping.segment_key,
        grouping.segment_size,
    )


def _in_maintenance(
    snapshot: Snapshot, request: Request, codes: "_Codes", counts: Counter[ReasonCode]
) -> dict[ReasonCode, int]:
    """Count booked nodes that are in maintenance in this window under that; return when the first of them is over."""
    untils: dict[ReasonCode, int] = {}
    for number, windows in Upkeep.of(snapshot).windows.items():
        ends = [one.window.end_ms for one in windows if one.window.overlaps(request.window)]
        code = codes.own(number) if ends else None
        if code in {"booked", "islandBooked"}:
            counts[code] -= 1
            counts["maintenance"] += 1
            untils["maintenance"] = min(max(ends), untils.get("maintenance", max(ends)))
    return untils


class _Codes:
    """What keeps each open node away. Nodes are alike: those in the same state are asked together."""

    def __init__(self, fitting: Fitting) -> None:
        self._standing = standing = fitting.standing
        self._booked = fitting.booked
        self.counts: Final[Counter[ReasonCode]] = Counter()  # nodes by reason, without those that could give their part
        self._busy: set[int] = set()  # what is booked on nodes that are alike and wait for its end
        if standing.is_uniform:
            first = standing.picks[0]
            for booked, nodes in Counter(compress(self._booked, standing.is_alike)).items():
                code = _code(first, first.suitable, booked)
                self._count(code, nodes)
                if code == "booked":
                    self._busy.add(booked)
        for number in standing.unlike:
            self._count(self.own(number), 1)

    def waiting(self, numbers: Iterable[int]) -> list[int]:
        """Return those of some nodes that only bookings keep away."""
        booked, busy, is_alike = self._booked, self._busy, self._standing.is_alike
        return [
            number
            for number in numbers
            if (booked[number] in busy if is_alike[number] else self.own(number) == "booked")
        ]

    def own(self, number: int) -> ReasonCode | None:
        """Return what keeps one node away; None where something else than devices does, or nothing."""
        standing = self._standing
        if standing.reasons[number] is not None:
            return None
        return _code(standing.picks[number], standing.usable[number], self._booked[number])

    def _count(self, code: ReasonCode | None, nodes: int) -> None:
        if code is not None:
            self.counts[code] += nodes


def _code(picks: Picks, usable: int, booked: int) -> ReasonCode | None:
    free = picks.suitable & ~booked
    return None if picks[free & usable] else blocked_by(picks.layout, picks.entries, usable, free)


@lru_cache(maxsize=_REMEMBERED)
def blocked_by(layout: Layout, entries: tuple[Entry, ...], usable: int, free: int) -> ReasonCode:
    """Say why a node that passes every filter has no atoms to give in this window.

    Args:
        layout: Of the node.
        entries: What is asked.
        usable: Suitable atoms without a hold.
        free: Suitable atoms that are not booked in the window, held ones included.
    """
    if pick_atoms(free, layout, entries) or not pick_atoms(usable, layout, entries):
        return "held"
    anywhere = tuple(replace(entry, topology="any") for entry in entries)
    return "islandBooked" if pick_atoms(free & usable, layout, anywhere) else "booked"


def _free_again_ms(snapshot: Snapshot, request: Request, fitting: Fitting, codes: _Codes) -> int | None:
    standing, counts = fitting.standing, fitting.counts
    nearest = sorted(standing.names, key=lambda group: -counts.get(group, 0))  # of equals the first by name
    waiting = chain.from_iterable(codes.waiting(standing.members[group]) for group in nearest)
    first_ms: int | None = None
    for number in islice(waiting, _DATED_MAX):
        picks, usable = standing.picks[number], standing.usable[number]
        again_ms = snapshot.ordered[number].free_again_ms(usable, picks.__getitem__, request.window)
        if again_ms is not None and (first_ms is None or again_ms < first_ms):
            first_ms = again_ms
    return first_ms
