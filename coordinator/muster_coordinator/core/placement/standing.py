"""A pool as one shape sees it, whatever the window: who may take part, with which atoms, in which group."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from muster_coordinator.core.layout import Layout
from muster_coordinator.core.model import Entry, Shape
from muster_coordinator.core.occupancy import Lanes
from muster_coordinator.core.placement.atoms import pick_atoms
from muster_coordinator.core.placement.filters import Keys, first_reason, group_of
from muster_coordinator.core.placement.reasons import PERMANENT, Reason, ReasonCode
from muster_coordinator.core.snapshot import NodeView, Snapshot

Group = tuple[str, ...]
"""The values of the topology keys that some nodes share; empty without a key."""


class Picks(dict[int, int]):
    """What a node of one layout gives of its bookable atoms, by their mask; 0 where that is not enough."""

    def __init__(self, layout: Layout, entries: tuple[Entry, ...]) -> None:
        """Start empty: nodes are alike, so that a pool of thousands shows some hundred different masks."""
        super().__init__()
        self.layout: Final = layout
        self.suitable: Final = suitable(layout, entries)
        self.entries: Final = entries

    __hash__ = object.__hash__  # type: ignore[assignment] # one for each layout and question: known by its identity

    def __missing__(self, bookable: int) -> int:
        """Pick, and remember."""
        self[bookable] = mask = pick_atoms(bookable, self.layout, self.entries)
        return mask


@dataclass(frozen=True)
class Standing:
    """What no booking changes. Lists are by the numbers of the nodes."""

    shape: Shape
    keys: Keys
    lane_bits: int
    usable: list[int]  # suitable atoms without a hold; 0 on nodes that do not take part
    reasons: list[Reason | None]  # why they do not
    groups: list[Group | None]  # None where a value is missing
    picks: list[Picks]

    @classmethod
    def of(cls, snapshot: Snapshot, shape: Shape, keys: Keys) -> "Standing":
        """Ask every node every question, or carry on what is known of this pool."""
        return snapshot.once(("standing", shape, keys), lambda pool: cls._asked(pool, shape, keys))

    @classmethod
    def _asked(cls, snapshot: Snapshot, shape: Shape, keys: Keys) -> "Standing":
        views = snapshot.ordered
        size = len(views)
        lane_bits = snapshot.occupancy.lane_bits
        empty = cls(
            shape, keys, lane_bits, [0] * size, [None] * size, [None] * size, [Picks(Layout(()), shape.entries)] * size
        )
        empty._ask(views, range(size))
        return empty

    def revised(self, snapshot: Snapshot, changed: Iterable[int]) -> "Standing":
        """Return the standing of a pool in which some nodes have changed."""
        copy = Standing(
            self.shape, self.keys, self.lane_bits, self.usable[:], self.reasons[:], self.groups[:], self.picks[:]
        )
        copy._ask(snapshot.ordered, changed)
        return copy

    def _ask(self, views: tuple[NodeView, ...], numbers: Iterable[int]) -> None:
        by_layout = {picks.layout: picks for picks in {id(one): one for one in self.picks}.values()}
        shape, keys = self.shape, self.keys
        for number in numbers:
            view = views[number]
            reason = first_reason(view, shape, keys)
            self.reasons[number] = reason
            self.groups[number] = group_of(view, keys)
            picks = by_layout.get(view.layout)
            if picks is None:
                picks = by_layout[view.layout] = Picks(view.layout, shape.entries)
            self.picks[number] = picks
            self.usable[number] = picks.suitable & ~view.held_mask if reason is None else 0

    @cached_property
    def lanes(self) -> Lanes:
        """The usable atoms of all nodes as one integer."""
        width = self.lane_bits // 8
        return int.from_bytes(b"".join(mask.to_bytes(width, "little") for mask in self.usable), "little")

    @cached_property
    def members(self) -> Mapping[Group, tuple[int, ...]]:
        """Every node of each group, whether it takes part or not."""
        members: defaultdict[Group, list[int]] = defaultdict(list)
        for number, group in enumerate(self.groups):
            if group is not None:
                members[group].append(number)
        return {group: tuple(numbers) for group, numbers in members.items()}

    @cached_property
    def names(self) -> tuple[Group, ...]:
        """The groups, each once, in order."""
        return tuple(sorted(self.members))

    @cached_property
    def group_numbers(self) -> Sequence[int]:
        """The place of each node's group among `names`, or their number where it has none: quicker to count."""
        places = {group: place for place, group in enumerate(self.names)}
        return [len(places) if group is None else places[group] for group in self.groups]

    def picked(self, bookable: Sequence[int]) -> list[int]:
        """Return what each node gives of its bookable atoms; 0 where that is not enough."""
        first = self.picks[0] if self.picks else None
        if self.is_uniform and first is not None:
            # Nodes are alike: what each distinct mask gives is asked once, and looked up without a call of ours.
            known = {mask: first[mask] for mask in set(bookable)}
            return list(map(known.__getitem__, bookable))
        return [picks[mask] for picks, mask in zip(self.picks, bookable, strict=True)]

    @cached_property
    def is_uniform(self) -> bool:
        """Do all nodes have one layout?"""
        return len({id(picks) for picks in self.picks}) == 1

    @cached_property
    def is_alike(self) -> Sequence[bool]:
        """Which nodes take part with all that suits, nothing of it on hold; none where layouts differ."""
        asked = zip(self.reasons, self.picks, self.usable, strict=True)
        return [self.is_uniform and reason is None and usable == picks.suitable for reason, picks, usable in asked]

    @cached_property
    def unlike(self) -> Sequence[int]:
        """Nodes that take part, each in a state of its own."""
        asked = zip(self.reasons, self.is_alike, strict=True)
        return [number for number, (reason, is_alike) in enumerate(asked) if reason is None and not is_alike]

    @cached_property
    def closed(self) -> Counter[ReasonCode]:
        """How many nodes do not take part, by reason."""
        return Counter(reason.code for reason in self.reasons if reason is not None)

    @cached_property
    def ever(self) -> Counter[Group]:
        """How many nodes of each group would take part if all were healthy, open, heard from and free."""
        return Counter(
            group
            for group, reason in zip(self.groups, self.reasons, strict=True)
            if group is not None and (reason is None or reason.code not in PERMANENT)
        )


def suitable(layout: Layout, entries: tuple[Entry, ...]) -> int:
    """Return the atoms of a node that can serve any of some entries."""
    mask = 0
    for entry in entries:
        mask |= layout.suitable(entry)
    return mask
