"""What placing a request now would do, and the nearest yes where it would not: the planner's own words."""

from collections.abc import Iterable
from typing import Literal

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Agreed, Request, Reservation
from muster_coordinator.core.placement.nearest import Near, Search
from muster_coordinator.core.placement.pipeline import Plan
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.quota import Allowance, least_milli
from muster_coordinator.core.snapshot import NodeView, Snapshot
from muster_coordinator.service.accounts.charge import judged
from muster_coordinator.service.admit import decide
from muster_coordinator.service.bodies import MemberView, PreviewView, Yes
from muster_coordinator.service.conditions import condition_of
from muster_coordinator.store.read import PoolRow


def previewed(snapshot: Snapshot, wanted: Reservation, at: Moment, pool_row: PoolRow) -> PreviewView:
    """Return the plan, or the refusal with what would fit instead.

    Args:
        snapshot: The pool.
        wanted: What is asked, as a reservation that nobody has made.
        at: Now.
        pool_row: Its policy.
    """
    window = wanted.window
    decision = decide(snapshot, wanted, at, pool_row)
    if decision is None:
        return PreviewView(fits=False, start=window.start_ms, end=window.end_ms, as_of=at.ms)
    asked = wanted.request(window.occupied(pool_row.policy.turnaround_ms))
    search = Search(snapshot, asked)
    if isinstance(decision, Refusal):
        return PreviewView(
            fits=False,
            start=window.start_ms,
            end=window.end_ms,
            condition=condition_of(decision),
            nearest=_nearest(search, asked, at, pool_row, never=decision.never),
            as_of=at.ms,
        )
    others = search.other_values(decision.agreed) if asked.grouping.required else []
    return PreviewView(
        fits=True,
        start=window.start_ms,
        end=window.end_ms,
        topology=dict(decision.agreed),
        topology_value=_first_value(decision.agreed),
        members=_members(snapshot, decision),
        quota_milli=sum(snapshot.views[one.node_id].layout.milli(one.mask) for one in decision.members),
        nearest=_told("topology", others, pool_row),
        as_of=at.ms,
    )


def with_quota(view: PreviewView, wanted: Reservation, allowance: Allowance) -> PreviewView:
    """Return a preview with what the tenant's quota says to it: what is over it is not placed."""
    if allowance.limit_milli is None or wanted.spot:
        return view
    told = {"quota_limit_milli": allowance.limit_milli, "quota_used_milli": allowance.used_milli}
    milli = view.quota_milli if view.quota_milli is not None else least_milli(wanted.shape, wanted.size)
    over = judged(wanted, milli, allowance)
    if over is None or not (view.fits or over.never):
        return view.model_copy(update=told)
    return view.model_copy(update={**told, "fits": False, "condition": over.condition})


def _nearest(search: Search, asked: Request, at: Moment, pool_row: PoolRow, *, never: bool) -> list[Yes]:
    policy = pool_row.policy
    longest = None if never else search.longest(policy.max_duration_ms + policy.turnaround_ms)
    if longest is not None and longest.request.window.duration_ms <= policy.turnaround_ms:
        longest = None  # nothing of it would be left to use
    first = None if never else search.earliest_start(at.ms + policy.look_ahead_ms)  # no wait helps what never fits
    return [
        *_told("start", [first], pool_row),
        *_told("duration", [longest], pool_row),
        *_told("gangSize", [search.largest_gang()] if asked.size > 1 else [], pool_row),
        *_told("topology", search.other_keys() if asked.grouping.required else [], pool_row),
    ]


def _told(
    change: Literal["start", "duration", "gangSize", "topology"], found: Iterable[Near | None], pool_row: PoolRow
) -> list[Yes]:
    turnaround_ms = pool_row.policy.turnaround_ms
    return [
        Yes(
            change=change,
            start=near.request.window.start_ms,
            end=near.request.window.end_ms - turnaround_ms,
            gang_size=near.request.size,
            topology=dict(near.agreed),
            quota_milli=near.milli,
        )
        for near in found
        if near is not None
    ]


def _members(snapshot: Snapshot, decision: Plan) -> list[MemberView]:
    return [
        MemberView(
            node_id=member.node_id,
            node_name=snapshot.views[member.node_id].node.name,
            devices=_uuids(snapshot.views[member.node_id], member.mask),
            topology=dict(member.agreed),
        )
        for member in decision.members
    ]


def _first_value(agreed: Agreed) -> str | None:
    return agreed[0][1] if agreed else None


def _uuids(view: NodeView, mask: int) -> list[str]:
    return list(dict.fromkeys(atom.device for atom in view.node.atoms if mask >> atom.number & 1))
