"""How good a node is for a request: scorers of 0..1000, weighed in one table."""

from collections.abc import Callable
from typing import Final

from muster_coordinator.core.model import Request
from muster_coordinator.core.snapshot import NodeView

SCORE_MAX: Final = 1_000

Scorer = Callable[[NodeView, Request, int], int]


def packs_tightly(view: NodeView, request: Request, picked: int) -> int:
    """Prefer the node that has the fewest bookable atoms left afterwards, so that whole nodes stay whole."""
    left = view.free(request.window) & ~view.held_mask & ~picked
    return SCORE_MAX - SCORE_MAX * left.bit_count() // max(1, len(view.node.atoms))


def sits_snugly(view: NodeView, request: Request, picked: int) -> int:
    """Prefer a window that touches the neighbours' on the same atoms, so that the calendar is not shredded.

    1000 when bookings end at the start and begin at the end, 500 for one of them, 0 for none.
    """
    before = any(one.end_ms == request.window.start_ms and one.mask & picked for one in view.node.booked)
    after = any(one.start_ms == request.window.end_ms and one.mask & picked for one in view.node.booked)
    return (before + after) * SCORE_MAX // 2


def has_nothing_held(view: NodeView, _request: Request, _picked: int) -> int:
    """Prefer nodes without any hold: trouble seldom comes alone."""
    return 0 if view.held_mask else SCORE_MAX


WEIGHTS: Final[tuple[tuple[Scorer, int], ...]] = (
    # Each weight exceeds the largest sum of those after it, in steps of the first one's resolution.
    (packs_tightly, 10),
    (has_nothing_held, 3),
    (sits_snugly, 1),
)


def score(view: NodeView, request: Request, picked: int) -> int:
    """Return the node's weighted points, 0..1000 times the sum of weights; higher is better."""
    return sum(weight * scorer(view, request, picked) for scorer, weight in WEIGHTS)
