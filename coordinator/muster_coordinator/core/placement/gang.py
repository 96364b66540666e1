"""Gangs: fitting nodes in, ranked whole gangs out. Runs between scoring and the plan."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fit:
    """A node that could take its part of the gang."""

    node_id: str
    name: str
    group: str  # its value of the topology key; empty where the gang has none
    mask: int  # the atoms it would give
    left: int  # bookable atoms it would have left
    points: int  # higher is better; an int, so that sums and ties are exact


@dataclass(frozen=True, slots=True)
class Group:
    """What is known of a topology value beyond its fitting nodes."""

    nodes: int  # all nodes of the value, fitting or not
    untouched: int  # those of them that are wholly free in the window


@dataclass(frozen=True, slots=True)
class Candidate:
    """One gang: the best nodes of one group, in the order of their names."""

    group: str
    fits: tuple[Fit, ...]
    rank: tuple[int, int, int]  # lower is better: least leftover, breaks no whole group, leaves a spare
    points: int


def rank_gangs(fits: Iterable[Fit], groups: Mapping[str, Group], size: int) -> tuple[list[Candidate], int]:
    """Take the `size` best nodes of each group, then rank the groups.

    Args:
        fits: One for each fitting node, in any order: the answer does not depend on it.
        groups: Every group that has a fitting node.
        size: Nodes in the gang, at least 1.

    Returns:
        Candidates, best first, and the most nodes that fit together in one group.

    Source: design, section 4, steps 2 and 3. Cost: O(n log n) in fitting nodes.
    """
    by_group: defaultdict[str, list[Fit]] = defaultdict(list)
    for fit in fits:
        by_group[fit.group].append(fit)
    candidates = [
        _candidate(group, members, groups[group], size) for group, members in by_group.items() if len(members) >= size
    ]
    candidates.sort(key=lambda candidate: (candidate.rank, -candidate.points, candidate.group))
    return candidates, max(map(len, by_group.values()), default=0)


def _candidate(name: str, members: list[Fit], group: Group, size: int) -> Candidate:
    best = sorted(members, key=lambda fit: (fit.left, -fit.points, fit.node_id))[:size]
    leftover = len(members) - size
    breaks_whole = int(group.untouched == group.nodes and size < group.nodes)
    # A spare is a fitting node of the same value that a repair can take.
    no_spare = int(leftover == 0)
    # Consecutive ranks of the gang should sit side by side: names follow the racks.
    placed = tuple(sorted(best, key=lambda fit: (fit.name, fit.node_id)))
    return Candidate(name, placed, (leftover, breaks_whole, no_spare), sum(fit.points for fit in best))
