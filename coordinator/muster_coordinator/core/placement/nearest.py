"""The nearest yes: what would fit where a request does not. The planner itself, asked about other windows and sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from muster_coordinator.core.model import Agreed, Grouping, Request
from muster_coordinator.core.placement.fitting import Fitting, largest, whole_gangs
from muster_coordinator.core.placement.standing import Group
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.time import MS_MAX, Window

_LOOKS_MAX: Final = 48
"""Windows that a search looks at before it gives up: some 30 ms in a pool of 2,000 nodes."""

_KEYS_MAX: Final = 6  # other labels that are tried: racks, rows, rooms
_MEASURED: Final = ("gpu.", "driver.")  # labels that say what a node is, not where
_VALUES_MAX: Final = 4  # other values that are named


@dataclass(frozen=True, slots=True)
class Near:
    """A request that fits, and what the whole gang would agree on."""

    request: Request
    agreed: Agreed
    milli: int  # how much GPU all its nodes would give, in milli-GPU


class Search:
    """One pool, searched for a request near the asked one. It counts its looks: somebody waits for the answer."""

    def __init__(self, snapshot: Snapshot, request: Request) -> None:
        """Take what was asked.

        Args:
            snapshot: The pool.
            request: With the window that would be occupied, turnaround included.
        """
        self._snapshot: Final = snapshot
        self._request: Final = request
        self._looks = 0

    def largest_gang(self) -> Near | None:
        """Return the largest gang that fits in the asked window; None where no node does."""
        fitting = self._fitting(self._request)
        size, domain = largest(fitting, self._request, fitting.counts)
        return None if domain is None or not size else self._near(replace(self._request, size=size), fitting, domain)

    def longest(self, most_ms: int) -> Near | None:
        """Return the longest duration that fits from the asked start on; None where none does.

        Args:
            most_ms: What the pool allows, turnaround included.
        """
        start_ms = self._request.window.start_ms
        end_ms = min(start_ms + most_ms, MS_MAX)
        if (near := self._until(end_ms)) is not None:
            return near
        edges = [edge for edge in self._snapshot.occupancy.edges_after(start_ms) if edge < end_ms]
        best = self._last_that_fits(edges)
        reached_ms = start_ms if best is None else best.request.window.end_ms
        starts, _ = self._snapshot.occupancy.inside(reached_ms)
        inside = [instant for instant in starts if reached_ms < instant < end_ms]
        return self._last_that_fits(inside) or best

    def earliest_start(self, until_ms: int) -> Near | None:
        """Return the first later start at which the asked gang fits for the asked duration; None where none was found.

        Args:
            until_ms: The last start to consider.

        An earlier one is never missed, but in a calendar full of gaps the search may give up before it finds any.
        """
        self._looks = 0
        start_ms = self._request.window.start_ms
        occupancy = self._snapshot.occupancy
        begins = [start_ms, *(edge for edge in occupancy.edges_after(start_ms) if edge <= until_ms)]
        return self._first_bucket(begins, until_ms)

    def other_values(self, taken: Agreed) -> list[Near]:
        """Return the gang in other values of the asked topology keys than `taken`, those with most room first."""
        fitting = self._fitting(self._request)
        gangs = whole_gangs(fitting, self._request)
        best = sorted((-left, domain) for domain, (left, _) in gangs.items() if self._named(fitting, domain) != taken)
        return [self._near(self._request, fitting, domain) for _, domain in best[:_VALUES_MAX] if domain]

    def other_keys(self) -> list[Near]:
        """Return the gang as it would fit with another label to agree on, the rarest first, or with none."""
        asked = self._request.grouping
        labels = {key for view in self._snapshot.ordered for key in view.node.labels if not key.startswith(_MEASURED)}
        found: list[tuple[int, Near]] = []
        for key in sorted(labels - set(asked.required))[:_KEYS_MAX]:
            near = self._fits(replace(self._request, grouping=Grouping((key,))))
            if near is not None:
                found.append((len(self._fitting(near.request).standing.members), near))
        alone = self._fits(replace(self._request, grouping=Grouping()))
        ordered = [near for _, near in sorted(found, key=lambda item: (-item[0], item[1].agreed))]
        return [*ordered, *([alone] if alone is not None else [])]

    def _first_bucket(self, begins: Sequence[int], until_ms: int) -> Near | None:
        """Search buckets for the first start, the earlier half first; one look may rule out all of them."""
        if not begins or not self._may_fit(begins[0], self._end_of(begins[-1], until_ms)):
            return None
        if len(begins) > 1:
            half = len(begins) // 2
            return self._first_bucket(begins[:half], until_ms) or self._first_bucket(begins[half:], until_ms)
        _, ends = self._snapshot.occupancy.inside(begins[0])
        return self._first_start([begins[0], *(one for one in ends if begins[0] < one <= until_ms)])

    def _first_start(self, starts: Sequence[int]) -> Near | None:
        if not starts or not self._may_fit(starts[0], starts[-1]):
            return None
        if len(starts) == 1:
            return self._at(starts[0])
        half = len(starts) // 2
        return self._first_start(starts[:half]) or self._first_start(starts[half:])

    def _may_fit(self, first_ms: int, last_ms: int) -> bool:
        """Look at what all windows that begin from `first_ms` to `last_ms` share: where it is full, so are they."""
        end_ms = first_ms + self._request.window.duration_ms
        if self._looks >= _LOOKS_MAX:
            return False
        if end_ms <= last_ms or first_ms == last_ms:
            return True
        return self._fits(replace(self._request, window=Window(last_ms, end_ms))) is not None

    def _end_of(self, begin_ms: int, until_ms: int) -> int:
        later = self._snapshot.occupancy.edges_after(begin_ms)
        return min(later[0], until_ms) if later else until_ms

    def _last_that_fits(self, ends: Sequence[int]) -> Near | None:
        """Return the longest window of the asked start that ends at one of these instants: longer never fits better."""
        best: Near | None = None
        first, last = 0, len(ends)
        while first < last:
            half = (first + last) // 2
            near = self._until(ends[half])
            if near is None:
                last = half
            else:
                best, first = near, half + 1
        return best

    def _until(self, end_ms: int) -> Near | None:
        return self._fits(replace(self._request, window=Window(self._request.window.start_ms, end_ms)))

    def _at(self, start_ms: int) -> Near | None:
        end_ms = start_ms + self._request.window.duration_ms
        return self._fits(replace(self._request, window=Window(start_ms, end_ms))) if end_ms <= MS_MAX else None

    def _fits(self, request: Request) -> Near | None:
        self._looks += 1
        fitting = self._fitting(request)
        gangs = whole_gangs(fitting, request)
        if not gangs:
            return None
        return self._near(request, fitting, min(gangs, key=lambda domain: (gangs[domain][0], domain)))

    def _fitting(self, request: Request) -> Fitting:
        return Fitting.of(self._snapshot, request, request.grouping.required, frozenset(), {})

    def _near(self, request: Request, fitting: Fitting, domain: Group) -> Near:
        group = next(group for group in sorted(fitting.counts) if group[: len(domain)] == domain)
        number = fitting.numbers(group)[0]
        milli = fitting.standing.picks[number].layout.milli(fitting.picked[number])
        return Near(request, self._named(fitting, domain), milli * request.size)

    def _named(self, fitting: Fitting, domain: Group) -> Agreed:
        return tuple(zip(fitting.keys, domain, strict=True))
