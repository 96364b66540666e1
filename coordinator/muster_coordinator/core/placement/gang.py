"""Gangs: fitting nodes in, ranked whole gangs out. Runs between scoring and the plan."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster_coordinator.core.placement.atoms import Picked


@dataclass(frozen=True, slots=True)
class Fit:
    """A node that could take its part of the gang."""

    name: str
    picked: Picked
    points: int  # higher is better; an int, so that sums and ties are exact
    sound: bool = True  # nothing on it is on hold


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of one topology value that could take part, and what taking them would cost the pool."""

    fits: tuple[Fit, ...]
    breaks_whole: bool = False  # all its nodes are wholly free, and some would stay so


@dataclass(frozen=True, slots=True)
class Candidate:
    """One gang: the best nodes of one group, in the order of their names."""

    group: str
    fits: tuple[Fit, ...]
    rank: tuple[int, int, int]  # lower is better: least leftover, breaks no whole group, leaves a sound spare
    points: int


def tightest(fitting: Mapping[str, Sequence[Picked]], size: int) -> list[str]:
    """Return the groups that hold the gang and have the fewest fitting nodes: no other can rank first."""
    fewest = min((len(nodes) for nodes in fitting.values() if len(nodes) >= size), default=0)
    return [group for group, nodes in fitting.items() if len(nodes) == fewest >= size]


def rank_gangs(groups: Mapping[str, Group], size: int) -> list[Candidate]:
    """Take the `size` best nodes of each group, then rank the groups, best first.

    Args:
        groups: By topology value, each with at least `size` fits; neither order matters.
        size: Nodes in the gang, at least 1.

    Source: design, section 4, steps 2 and 3. Cost: O(n log n) in fitting nodes.
    """
    candidates = [_candidate(name, group, size) for name, group in groups.items()]
    return sorted(candidates, key=lambda candidate: (candidate.rank, -candidate.points, candidate.group))


def _candidate(name: str, group: Group, size: int) -> Candidate:
    # Nodes in trouble last, however well they would fit; then the least leftover: 4 of 8 GPUs go to a half-used node.
    ordered = sorted(group.fits, key=lambda fit: (not fit.sound, fit.picked.left, -fit.points, fit.picked.node_id))
    best, others = ordered[:size], ordered[size:]
    # A spare is a node of the same value that a repair could take: one with holds of its own is none.
    no_spare = not any(fit.sound for fit in others)
    return Candidate(
        name, _side_by_side(best), (len(others), group.breaks_whole, no_spare), sum(fit.points for fit in best)
    )


def _side_by_side(fits: Iterable[Fit]) -> tuple[Fit, ...]:
    # Consecutive ranks of the gang should be neighbours: names follow the racks.
    return tuple(sorted(fits, key=lambda fit: (fit.name, fit.picked.node_id)))
