"""Gangs: fitting nodes in, ranked whole gangs out. Runs between scoring and the plan."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster_coordinator.core.model import Policy
from muster_coordinator.core.placement.standing import Group


@dataclass(frozen=True, slots=True)
class Fit:
    """A node that could take its part of the gang."""

    node_id: str
    mask: int  # the atoms that it would give
    left: int  # suitable atoms that it could still give afterwards
    points: int = 0  # higher is better; an int, so that sums and ties are exact
    sound: bool = True  # nothing on it is on hold, and it does not come and go
    shreds: int = 0  # gaps that it would leave in the calendar, too short to be of use


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a gang that one group gives: all of it, or some of its segments."""

    group: Group
    fits: tuple[Fit, ...]  # its nodes that can be the best, and one sound one of the rest
    size: int  # how many of them are wanted
    breaks_whole: bool  # all nodes of the group are wholly free, and some would stay so


@dataclass(frozen=True, slots=True)
class Candidate:
    """One gang: the best nodes of its groups, best first in each."""

    domain: Group
    fits: tuple[tuple[Group, Fit], ...]
    rank: tuple[int, ...]  # lower is better, compared from the first
    points: int


def shared_out(counts: Mapping[Group, int], size: int, segment_size: int) -> dict[Group, int]:
    """Share a gang out to groups, in whole segments; nothing where they do not hold it.

    As few groups as can be: the largest first, and for what is then left the smallest that takes it.

    Args:
        counts: How many nodes of each group could take part.
        size: Of the gang, a multiple of `segment_size`.
        segment_size: Nodes that must come from one group.
    """
    room = {group: count - count % segment_size for group, count in counts.items() if count >= segment_size}
    shares: dict[Group, int] = {}
    left = size
    while left and room:
        enough = [group for group, most in room.items() if most >= left]
        # Where one takes all the rest: the tightest. Else the one that takes the most.
        chosen = (
            min(enough, key=lambda one: (counts[one], one)) if enough else min(room, key=lambda one: (-room[one], one))
        )
        shares[chosen] = min(left, room.pop(chosen))
        left -= shares[chosen]
    return {} if left else shares


def tightest_alone(policy: Policy) -> bool:
    """Tell whether tightness is compared before, and apart from, everything else."""
    others = (policy.rank_whole_domain, policy.rank_usable_gaps, policy.rank_spare)
    return policy.rank_tightest > max(others)


def rank_gangs(domains: Mapping[Group, tuple[int, Sequence[Share]]], policy: Policy) -> list[Candidate]:
    """Take the best nodes of each share, then rank the domains, best first.

    Args:
        domains: By the values on which the whole gang would agree: nodes left over there, and the shares. No order
            matters.
        policy: Of the pool: its weights.

    Source: design, section 4, steps 2 and 3. Cost: O(n log n) in fitting nodes.
    """
    candidates = [_candidate(domain, left, shares, policy) for domain, (left, shares) in domains.items()]
    return sorted(candidates, key=lambda candidate: (candidate.rank, -candidate.points, candidate.domain))


def _candidate(domain: Group, left_over: int, shares: Sequence[Share], policy: Policy) -> Candidate:
    chosen: list[tuple[Group, Fit]] = []
    no_spare = 0
    for share in sorted(shares, key=lambda one: one.group):
        # Nodes in trouble last, however well they would fit; then the least leftover: 4 of 8 GPUs to a half-used one.
        ordered = sorted(share.fits, key=lambda fit: (not fit.sound, fit.left, -fit.points, fit.node_id))
        chosen += [(share.group, fit) for fit in ordered[: share.size]]
        # A spare is a node of the same value that a repair could take: one with holds of its own is none.
        no_spare += not any(fit.sound for fit in ordered[share.size :])
    costs = (
        (policy.rank_tightest, left_over),
        (policy.rank_whole_domain, sum(share.breaks_whole for share in shares)),
        (policy.rank_usable_gaps, sum(fit.shreds for _, fit in chosen)),
        (policy.rank_spare, no_spare),
    )
    return Candidate(domain, tuple(chosen), _rank(costs), sum(fit.points for _, fit in chosen))


def _rank(costs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Order costs by falling weight; add up those of equal weight, and leave out those without any."""
    by_weight: dict[int, int] = {}
    for weight, cost in costs:
        if weight:
            by_weight[weight] = by_weight.get(weight, 0) + cost
    return tuple(by_weight[weight] for weight in sorted(by_weight, reverse=True))
