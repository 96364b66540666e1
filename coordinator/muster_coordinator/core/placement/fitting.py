"""Who could take part in one window: bookable atoms and picks of every node, counted by group."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import compress

from muster_coordinator.core.model import Request
from muster_coordinator.core.placement.filters import Keys
from muster_coordinator.core.placement.gang import shared_out
from muster_coordinator.core.placement.standing import Group, Standing
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.time import Window


@dataclass(frozen=True)
class Fitting:
    """A pool in one window. Sequences are by the numbers of the nodes."""

    standing: Standing
    keys: Keys  # on which the whole gang agrees; the standing's have the segment's besides
    booked: Sequence[int]  # atoms that are booked for any part of the window
    bookable: Sequence[int]  # usable atoms that are not
    picked: list[int]  # atoms that the node would give; 0 where it cannot take part
    counts: Mapping[Group, int]  # nodes that could

    @classmethod
    def of(
        cls, snapshot: Snapshot, request: Request, keys: Keys, excluded: AbstractSet[str], within: Mapping[str, str]
    ) -> "Fitting":
        """Look at every node.

        Args:
            snapshot: The pool.
            request: What is asked.
            keys: The level of its grouping.
            excluded: Nodes that must not take part.
            within: Values that some of the keys must have.
        """
        segment_key = request.grouping.segment_key
        all_keys = keys if segment_key is None else (*keys, segment_key)
        standing = Standing.of(snapshot, request.shape, all_keys)
        bookable, booked = _free(snapshot, standing, request.window)
        picked = standing.picked(bookable)
        for node_id in excluded:
            if (number := snapshot.number(node_id)) is not None:
                picked[number] = 0
        names = standing.names
        counts = {
            names[place]: count
            for place, count in Counter(compress(standing.group_numbers, picked)).items()
            if place < len(names)
        }
        if within:
            counts = {group: count for group, count in counts.items() if _agrees(all_keys, group, within)}
        return cls(standing, keys, booked, bookable, picked, counts)

    def numbers(self, group: Group) -> list[int]:
        """Return the nodes of a group that could take part."""
        return [number for number in self.standing.members[group] if self.picked[number]]

    def breaks_whole(self, group: Group, size: int) -> bool:
        """Would taking `size` nodes break a group all of whose nodes are wholly free?"""
        members = self.standing.members[group]
        return size < len(members) and not any(self.booked[number] for number in members)

    def domains(self, counts: Mapping[Group, int]) -> Mapping[Group, Mapping[Group, int]]:
        """Sort counts of groups by the values on which the whole gang would agree."""
        domains: defaultdict[Group, dict[Group, int]] = defaultdict(dict)
        for group, count in counts.items():
            domains[group[: len(self.keys)]][group] = count
        return domains


def whole_gangs(fitting: Fitting, request: Request) -> dict[Group, tuple[int, Mapping[Group, int]]]:
    """Return, for each domain that holds the gang, the nodes left over there, and how the gang is shared out."""
    size = request.size
    if request.grouping.segment_key is None:
        return {group: (count - size, {group: size}) for group, count in fitting.counts.items() if count >= size}
    gangs: dict[Group, tuple[int, Mapping[Group, int]]] = {}
    for domain, counts in fitting.domains(fitting.counts).items():
        if shares := shared_out(counts, size, request.grouping.segment_size):
            gangs[domain] = sum(counts.values()) - size, shares
    return gangs


def largest(fitting: Fitting, request: Request, counts: Mapping[Group, int]) -> tuple[int, Group | None]:
    """Return the most nodes that one domain could give together, in whole segments, and the domain."""
    segment_size = request.grouping.segment_size
    sizes = (
        counts
        if not segment_size
        else {
            domain: sum(count - count % segment_size for count in groups.values())
            for domain, groups in fitting.domains(counts).items()
        }
    )
    if not sizes:
        return 0, None
    most = max(sizes.values())
    return most, min(domain for domain, size in sizes.items() if size == most)


def _agrees(keys: Keys, group: Group, within: Mapping[str, str]) -> bool:
    return all(within.get(key, value) == value for key, value in zip(keys, group, strict=True))


def _free(snapshot: Snapshot, standing: Standing, window: Window) -> tuple[Sequence[int], Sequence[int]]:
    booked = snapshot.occupancy.during(window)
    taken = standing.lanes & booked
    return snapshot.masks(standing.lanes ^ taken), snapshot.masks(booked)
