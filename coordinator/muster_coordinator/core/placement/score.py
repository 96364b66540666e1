"""How good a node is for a request: scorers of 0..1000, weighed in one table."""

from collections.abc import Callable
from typing import Final

from muster_coordinator.core.model import Request
from muster_coordinator.core.placement.atoms import Picked
from muster_coordinator.core.placement.filters import group_value
from muster_coordinator.core.snapshot import NodeView
from muster_shared.wire import FABRIC_DOMAIN

SCORE_MAX: Final = 1_000  # fine enough for one GPU of a node, and whole: sums and ties are exact

Scorer = Callable[[NodeView, Request, Picked], int]


def packs_tightly(view: NodeView, _request: Request, picked: Picked) -> int:
    """Prefer the node that has the fewest bookable atoms left afterwards, so that whole nodes stay whole."""
    return SCORE_MAX - SCORE_MAX * picked.left // max(1, len(view.node.atoms))


def sits_snugly(view: NodeView, request: Request, picked: Picked) -> int:
    """Prefer a window that touches the neighbours' on the same atoms, so that the calendar is not shredded.

    1000 when bookings end at the start and begin at the end, 500 for one of them, 0 for none.
    """
    return sum(SCORE_MAX // 2 for touching in view.touching(request.window) if touching & picked.mask)


def has_nothing_held(view: NodeView, _request: Request, _picked: Picked) -> int:
    """Prefer nodes without any hold: trouble seldom comes alone."""
    return 0 if view.held_mask else SCORE_MAX


def leaves_fabrics_to_gangs(view: NodeView, request: Request, _picked: Picked) -> int:
    """Prefer nodes outside any NVLink fabric for work that does not ask for one: a gang cannot do without."""
    needs_one = request.topology_key is not None
    return SCORE_MAX if needs_one or group_value(view, FABRIC_DOMAIN) is None else 0


WEIGHTS: Final[tuple[tuple[Scorer, int], ...]] = (
    # Each weight exceeds the largest sum of those after it, in steps of the first one's resolution.
    (packs_tightly, 20),
    (has_nothing_held, 8),
    (leaves_fabrics_to_gangs, 4),
    (sits_snugly, 1),
)


def score(view: NodeView, request: Request, picked: Picked) -> int:
    """Return the node's weighted points, 0..1000 times the sum of weights; higher is better."""
    return sum(weight * scorer(view, request, picked) for scorer, weight in WEIGHTS)
