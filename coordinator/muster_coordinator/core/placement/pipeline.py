r"""The five steps of every placement: filter, pick atoms, score, gang, plan.

    nodes -> 1 filter -> 2 pick atoms -> 3 score -> 4 gang -> 5 plan or refusal
                 \\             \\                      |
                  +--- reasons --+------- blockers ----+

Create, retry, preview and repair all call `plan`. It holds nothing and takes no lock: only a commit does.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from muster_coordinator.core.model import Request
from muster_coordinator.core.placement.atoms import Picked, pick_atoms, why_none
from muster_coordinator.core.placement.filters import Open, Standing, standing
from muster_coordinator.core.placement.gang import Candidate, Fit, Group, rank_gangs, tightest
from muster_coordinator.core.placement.reasons import Reason, Refusal, gathered
from muster_coordinator.core.placement.score import score
from muster_coordinator.core.snapshot import Snapshot


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
        top_n: How many of the best candidates of equal rank are drawn from, at least 1.
        excluded: Nodes that refused in an earlier round, or that a repair avoids.
        within: Only this value of the topology key, for a repair inside the same fabric.

    Source: design, section 4. Cost: linear in nodes, logarithmic in the bookings of each.
    """
    known = snapshot.once(standing, request.shape, request.topology_key)
    fitting = {
        group: _picked(snapshot, request, nodes, excluded)
        for group, nodes in known.open.items()
        if within is None or group == within
    }
    best = tightest(fitting, request.size)
    if not best:
        return _refusal(snapshot, request, known, fitting, excluded)
    groups = {group: _group(snapshot, request, known, group, fitting[group]) for group in best}
    chosen = _drawn(rank_gangs(groups, request.size), seed, top_n)
    members = tuple(Placed(fit.picked.node_id, fit.picked.mask) for fit in chosen.fits)
    return Plan(members, chosen.group or None, seed)


def _picked(snapshot: Snapshot, request: Request, nodes: Sequence[Open], excluded: AbstractSet[str]) -> list[Picked]:
    views, window = snapshot.views, request.window
    count, topology = request.shape.count, request.shape.topology
    picked: list[Picked] = []
    for one in nodes:
        bookable = views[one.node_id].free(window) & one.usable
        mask = pick_atoms(bookable, one.islands, count, topology)
        if mask and one.node_id not in excluded:
            picked.append(Picked(one.node_id, mask, bookable.bit_count() - count))
    return picked


def _group(snapshot: Snapshot, request: Request, known: Standing, name: str, fitting: Sequence[Picked]) -> Group:
    views = snapshot.views
    fits = tuple(
        Fit(
            views[one.node_id].node.name, one, score(views[one.node_id], request, one), not views[one.node_id].held_mask
        )
        for one in fitting
    )
    nodes = known.nodes[name]
    breaks_whole = request.size < len(nodes) and all(
        views[node_id].free(request.window) == views[node_id].atoms_mask for node_id in nodes
    )
    return Group(fits, breaks_whole)


def _drawn(candidates: list[Candidate], seed: int, top_n: int) -> Candidate:
    equal = [candidate for candidate in candidates[:top_n] if candidate.rank == candidates[0].rank]
    return equal[seed % len(equal)]


def _refusal(
    snapshot: Snapshot,
    request: Request,
    known: Standing,
    fitting: dict[str, list[Picked]],
    excluded: AbstractSet[str],
) -> Refusal:
    reasons = dict(known.reasons)
    for group, nodes in known.open.items():
        fit = {one.node_id for one in fitting.get(group, ())}
        for one in nodes:
            if one.node_id in fit:
                reasons[one.node_id] = Reason("tooFewPeers")
            elif one.node_id in excluded or group not in fitting:
                reasons[one.node_id] = Reason("excluded")
            else:
                reasons[one.node_id] = why_none(snapshot.views[one.node_id], one, request)
    size_max = max(map(len, fitting.values()), default=0)
    never = known.size_ever < request.size
    return Refusal(request.size, request.topology_key, size_max, gathered(reasons.values()), never)
