r"""The five steps of every placement: filter, pick atoms, score, gang, plan.

    nodes -> 1 filter -> 2 pick atoms -> 3 score -> 4 gang -> 5 plan or refusal
                 \\             \\                      |
                  +--- reasons --+------- blockers ----+

Create, retry, preview and repair all call `plan`. It holds nothing and takes no lock: only a commit does.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import Final

from muster_coordinator.core.model import Agreed, Policy, Request
from muster_coordinator.core.placement.fitting import Fitting, whole_gangs
from muster_coordinator.core.placement.gang import Candidate, Fit, Share, rank_gangs, tightest_alone
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.placement.refusal import refusal
from muster_coordinator.core.placement.score import Offer, Weighed, score, weighed
from muster_coordinator.core.placement.standing import Group
from muster_coordinator.core.snapshot import Snapshot

_DEFAULTS = Policy()

_TROUBLED: Final = 1 << 20
"""Added to what a node has left over where it is in trouble: more than any node has atoms."""

_SCORED_MAX: Final = 96
"""Nodes that are scored where many domains are equally tight, as in an empty pool: a few milliseconds' worth."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One node of a plan, the atoms it gives, and the labels that it must keep."""

    node_id: str
    mask: int
    agreed: Agreed = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole gang: `size` distinct nodes that agree on the labels asked for."""

    members: tuple[Placed, ...]
    agreed: Agreed  # what the whole gang agrees on: the level that could be had
    seed: int  # chance among equals was drawn from it; recorded with the decision

    def milli(self, snapshot: Snapshot) -> int:
        """Return how much GPU the whole gang is on the snapshot that it was planned on, in milli-GPU."""
        return sum(snapshot.views[one.node_id].layout.milli(one.mask) for one in self.members)


def plan(
    snapshot: Snapshot,
    request: Request,
    policy: Policy = _DEFAULTS,
    *,
    seed: int = 0,
    excluded: AbstractSet[str] = frozenset(),
    within: Agreed = (),
) -> Plan | Refusal:
    """Find the best gang for a request, or say why there is none.

    Args:
        snapshot: The pool at one version.
        request: What is asked.
        policy: Of the pool: `topN` and the weights.
        seed: Any integer; equal snapshot, request, policy and seed give an equal plan.
        excluded: Nodes that refused in an earlier round, or that a repair avoids.
        within: Only these values of topology keys, for a repair inside the same fabric.

    Source: design, section 4. Cost: linear in nodes, with a small factor; bookings hardly matter.
    """
    fitting: Fitting | None = None
    for keys in request.grouping.levels():
        fitting = Fitting.of(snapshot, request, keys, excluded, dict(within))
        if gangs := whole_gangs(fitting, request):
            return _best(snapshot, request, policy, seed, fitting, gangs)
    assert fitting is not None, "there is a last level"
    return refusal(snapshot, request, fitting)


def _best(
    snapshot: Snapshot,
    request: Request,
    policy: Policy,
    seed: int,
    fitting: Fitting,
    gangs: Mapping[Group, tuple[int, Mapping[Group, int]]],
) -> Plan:
    if tightest_alone(policy):
        gangs = _foremost(fitting, gangs, policy)
    scorers = weighed(policy)
    domains = {
        domain: (left, [_share(snapshot, request, policy, scorers, fitting, *part) for part in parts.items()])
        for domain, (left, parts) in gangs.items()
    }
    chosen = _drawn(rank_gangs(domains, policy), seed, policy.top_n)
    keys = fitting.standing.keys
    # Consecutive ranks of the gang, segment by segment, should be neighbours: names follow the racks.
    in_order = sorted(chosen.fits, key=lambda one: (one[0], snapshot.views[one[1].node_id].place, one[1].node_id))
    members = tuple(Placed(fit.node_id, fit.mask, tuple(zip(keys, group, strict=True))) for group, fit in in_order)
    return Plan(members, tuple(zip(keys, chosen.domain, strict=False)), seed)


def _foremost(
    fitting: Fitting, gangs: Mapping[Group, tuple[int, Mapping[Group, int]]], policy: Policy
) -> Mapping[Group, tuple[int, Mapping[Group, int]]]:
    """Leave out what cannot rank first, and of many equals all but the first by name: scoring is what costs."""
    least = min(left for left, _ in gangs.values())
    tightest = sorted(domain for domain, (left, _) in gangs.items() if left == least)
    if policy.rank_whole_domain <= max(policy.rank_usable_gaps, policy.rank_spare):
        return {domain: gangs[domain] for domain in tightest}  # what comes second is only known once they are scored
    breaks = {domain: sum(fitting.breaks_whole(*part) for part in gangs[domain][1].items()) for domain in tightest}
    fewest = min(breaks.values())
    tightest = [domain for domain in tightest if breaks[domain] == fewest]
    enough = max(policy.top_n, _SCORED_MAX // max(1, sum(fitting.counts[group] for group in gangs[tightest[0]][1])))
    return {domain: gangs[domain] for domain in tightest[:enough]}


def _share(
    snapshot: Snapshot,
    request: Request,
    policy: Policy,
    scorers: Weighed,
    fitting: Fitting,
    group: Group,
    size: int,
) -> Share:
    views, window = snapshot.ordered, request.window
    bookable, picked, numbers = fitting.bookable, fitting.picked, fitting.numbers(group)
    # Of many, only those are scored that can be among the best: trouble is compared first, then what is left over.
    keys = [
        (bookable[number] & ~picked[number]).bit_count() + (0 if views[number].is_sound else _TROUBLED)
        for number in numbers
    ]
    last = nsmallest(size, keys)[-1]
    fits: list[Fit] = []
    for key, number in zip(keys, numbers, strict=True):
        if key > last:
            continue
        view, mask, left = views[number], picked[number], key % _TROUBLED
        gaps = view.gaps(mask, window) if view.node.booked else (None, None)
        shreds = sum(1 for gap_ms in gaps if gap_ms is not None and 0 < gap_ms < policy.usable_gap_ms)
        points = score(view, request, Offer(mask, left, gaps), scorers)
        fits.append(Fit(view.node.id, mask, left, points, key < _TROUBLED, shreds))
    # One of the rest is enough to know that there is any.
    rest = (number for key, number in zip(keys, numbers, strict=True) if last < key < _TROUBLED)
    for number in islice(rest, 1):
        left = (bookable[number] & ~picked[number]).bit_count()
        fits.append(Fit(views[number].node.id, picked[number], left))
    return Share(group, tuple(fits), size, fitting.breaks_whole(group, size))


def _drawn(candidates: list[Candidate], seed: int, top_n: int) -> Candidate:
    equal = [candidate for candidate in candidates[:top_n] if candidate.rank == candidates[0].rank]
    return equal[seed % len(equal)]
