r"""The five steps of every placement: filter, pick atoms, score, gang, plan.

    nodes -> 1 filter -> 2 pick atoms -> 3 score -> 4 gang -> 5 plan or refusal
                 \\             \\                      |
                  +--- reasons --+------- blockers ----+

Create, retry, preview and repair all call `plan`. It holds nothing and takes no lock: only a commit does.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from muster_coordinator.core.model import Request
from muster_coordinator.core.placement.atoms import pick_atoms
from muster_coordinator.core.placement.filters import FILTERS, group_value
from muster_coordinator.core.placement.gang import Candidate, Fit, Group, rank_gangs
from muster_coordinator.core.placement.reasons import PERMANENT, Reason, Refusal, gathered
from muster_coordinator.core.placement.score import score
from muster_coordinator.core.snapshot import NodeView, Snapshot


@dataclass(frozen=True, slots=True)
class Placed:
    """One node of a plan and the atoms it gives."""

    node_id: str
    mask: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole gang: `size` distinct nodes with one topology value."""

    members: tuple[Placed, ...]
    topology_value: str | None
    seed: int  # chance among equals was drawn from it; recorded with the decision


def plan(
    snapshot: Snapshot,
    request: Request,
    *,
    seed: int = 0,
    top_n: int = 1,
    excluded: AbstractSet[str] = frozenset(),
    within: str | None = None,
) -> Plan | Refusal:
    """Find the best gang for a request, or say why there is none.

    Args:
        snapshot: The pool at one version.
        request: What is asked.
        seed: Any integer; equal snapshot, request and seed give an equal plan.
        top_n: How many of the best candidates of equal rank are drawn from.
        excluded: Nodes that refused in an earlier round, or that a repair avoids.
        within: Only this value of the topology key, for a repair inside the same fabric.

    Source: design, section 4. Cost: linear in nodes and in their bookings that start before the window ends.
    """
    fits: list[Fit] = []
    reasons: list[Reason] = []
    for view in snapshot.views.values():
        fit = _fit(view, request, excluded, within)
        if isinstance(fit, Fit):
            fits.append(fit)
        else:
            reasons.append(fit)
    groups = _groups(snapshot, request, fits)
    candidates, size_max = rank_gangs(fits, groups, request.size)
    if candidates:
        chosen = _drawn(candidates, seed, top_n)
        members = tuple(Placed(fit.node_id, fit.mask) for fit in chosen.fits)
        return Plan(members, chosen.group or None, seed)
    reasons += [Reason("tooFewPeers")] * len(fits)
    never = _could_ever_fit(snapshot, request) < request.size
    return Refusal(request.size, request.topology_key, size_max, gathered(reasons), never)


def _fit(view: NodeView, request: Request, excluded: AbstractSet[str], within: str | None) -> Fit | Reason:
    for question in FILTERS:
        if reason := question(view, request):
            return reason
    group = group_value(view, request.topology_key) or "" if request.topology_key else ""
    if view.node.id in excluded or (within is not None and group != within):
        return Reason("excluded")
    picked = pick_atoms(view, request)
    if isinstance(picked, Reason):
        return picked
    left = (view.free(request.window) & ~view.held_mask & ~picked).bit_count()
    return Fit(view.node.id, view.node.name, group, picked, left, score(view, request, picked))


def _groups(snapshot: Snapshot, request: Request, fits: list[Fit]) -> dict[str, Group]:
    if request.topology_key is None:
        # Nodes that need no common value form one group that nobody minds breaking.
        return {"": Group(nodes=request.size, untouched=0)}
    nodes: dict[str, list[int]] = {fit.group: [0, 0] for fit in fits}
    for view in snapshot.views.values():
        count = nodes.get(group_value(view, request.topology_key) or "")
        if count is not None:
            count[0] += 1
            count[1] += view.free(request.window) == view.atoms_mask
    return {name: Group(count[0], count[1]) for name, count in nodes.items()}


def _drawn(candidates: list[Candidate], seed: int, top_n: int) -> Candidate:
    equal = [candidate for candidate in candidates[:top_n] if candidate.rank == candidates[0].rank]
    return equal[seed % len(equal)]


def _could_ever_fit(snapshot: Snapshot, request: Request) -> int:
    """Return the most nodes of one group that would fit if all were free, healthy and open."""
    permanent: list[Callable[[NodeView, Request], Reason | None]] = list(FILTERS)
    sizes: dict[str, int] = {}
    for view in snapshot.views.values():
        reasons = (question(view, request) for question in permanent)
        if any(reason is not None and reason.code in PERMANENT for reason in reasons):
            continue
        group = group_value(view, request.topology_key) or "" if request.topology_key else ""
        sizes[group] = sizes.get(group, 0) + 1
    return max(sizes.values(), default=0)
