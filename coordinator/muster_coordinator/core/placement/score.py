"""How good a node is for a request: scorers of 0..1000, weighed by the pool's policy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from muster_coordinator.core.model import Policy, Request
from muster_coordinator.core.placement.filters import group_value
from muster_coordinator.core.snapshot import NodeView
from muster_shared.wire import FABRIC_DOMAIN

SCORE_MAX: Final = 1_000  # fine enough for one GPU of a node, and whole: sums and ties are exact

FAULT_MEMORY_MS: Final = 7 * 86_400_000
"""How long a fault that is over speaks against a node: most come back within days. Source: facts on reliability."""

Gaps = tuple[int | None, int | None]
"""How long the atoms are idle before and after the window, ms; None where nothing is booked on that side."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node would give."""

    mask: int
    left: int  # suitable atoms that it could still give afterwards
    gaps: Gaps = (None, None)


Scorer = Callable[[NodeView, Request, Offer], int]


def packs_tightly(view: NodeView, _request: Request, offer: Offer) -> int:
    """Prefer the node that has the fewest bookable atoms left afterwards, so that whole nodes stay whole."""
    return SCORE_MAX - SCORE_MAX * offer.left // max(1, len(view.node.atoms))


def has_nothing_held(view: NodeView, _request: Request, _offer: Offer) -> int:
    """Prefer nodes without any hold that do not come and go: trouble seldom comes alone."""
    return SCORE_MAX if view.is_sound else 0


def had_no_recent_fault(view: NodeView, request: Request, _offer: Offer) -> int:
    """Prefer nodes whose last fault will be long past when the window begins."""
    if not view.node.fault_ms:
        return SCORE_MAX
    age_ms = max(0, request.window.start_ms - view.node.fault_ms)
    return min(SCORE_MAX, SCORE_MAX * age_ms // FAULT_MEMORY_MS)


def leaves_fabrics_to_gangs(view: NodeView, request: Request, _offer: Offer) -> int:
    """Prefer nodes outside any NVLink fabric for work that does not ask for one: a gang cannot do without."""
    grouping = request.grouping
    needs_one = grouping.required or grouping.preferred or grouping.segment_key
    return SCORE_MAX if needs_one or group_value(view, FABRIC_DOMAIN) is None else 0


def sits_snugly(_view: NodeView, request: Request, offer: Offer) -> int:
    """Prefer the gap that the window fills best, so that the calendar is not shredded.

    500 for each side on which it touches a booking of the same atoms, less the longer the gap, 0 for an open side.
    """
    length_ms = request.window.duration_ms
    half = SCORE_MAX // 2
    return sum(half * length_ms // (length_ms + gap_ms) for gap_ms in offer.gaps if gap_ms is not None)


Weighed = tuple[tuple[Scorer, int], ...]


def weighed(policy: Policy) -> Weighed:
    """Return the scorers that count in a pool, each with its weight."""
    table: Weighed = (
        (packs_tightly, policy.score_packing),
        (has_nothing_held, policy.score_soundness),
        (had_no_recent_fault, policy.score_no_recent_fault),
        (leaves_fabrics_to_gangs, policy.score_fabric_kept),
        (sits_snugly, policy.score_snugness),
    )
    return tuple((scorer, weight) for scorer, weight in table if weight)


def score(view: NodeView, request: Request, offer: Offer, scorers: Weighed) -> int:
    """Return the node's weighted points, 0..1000 times the sum of weights; higher is better."""
    return sum(weight * scorer(view, request, offer) for scorer, weight in scorers)
