"""Which members leave a gang that gets smaller: those that are worth least, and whole segments only."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace

from muster_coordinator.core.model import Agreed, BindState, Member, Policy, Reservation, State
from muster_coordinator.core.placement.score import Offer, had_no_recent_fault, has_nothing_held
from muster_coordinator.core.repair.check import Risk, risks
from muster_coordinator.core.snapshot import Snapshot

_LOST, _AT_RISK, _SILENT, _SOUND = range(4)

Worth = tuple[int, int, int]
"""How much a member is worth: its kind, its node's soundness, and its rank in the gang, from the last one on."""


def leaving(reservation: Reservation, size: int, snapshot: Snapshot, policy: Policy) -> tuple[Member, ...]:
    """Return the members that leave when `size` stay, the worst first.

    First those that are at risk or lost, then those whose node is silent, then those on the least sound nodes, then
    the last by name. Of a gang with segments, whole segments leave.

    Args:
        reservation: With its members.
        size: How many stay: at least 1, fewer than there are, and whole segments.
        snapshot: At least the members' nodes.
        policy: Of the pool.
    """
    worth = _worth(reservation, snapshot, policy)
    unit = reservation.grouping.segment_size or 1
    rest: defaultdict[Agreed, list[Member]] = defaultdict(list)
    for member in sorted(reservation.members, key=lambda one: worth[one.allocation_id]):
        rest[member.agreed if reservation.grouping.segment_size else ()].append(member)
    gone: list[Member] = []
    while len(reservation.members) - len(gone) > size:
        value = min(rest, key=lambda agreed: [worth[one.allocation_id] for one in rest[agreed][:unit]])
        gone += rest[value][:unit]
        del rest[value][:unit]
        if not rest[value]:
            del rest[value]
    return tuple(gone)


def split_segments(reservation: Reservation, gone: Collection[Member]) -> tuple[Agreed, ...]:
    """Return the values of which not whole segments would leave; empty where the gang keeps its form."""
    unit = reservation.grouping.segment_size
    leave: defaultdict[Agreed, int] = defaultdict(int)
    for member in gone:
        leave[member.agreed] += 1
    return tuple(sorted(agreed for agreed, count in leave.items() if unit and count % unit))


def _worth(reservation: Reservation, snapshot: Snapshot, policy: Policy) -> dict[str, Worth]:
    # As if it had not begun: what only keeps new work away counts too when somebody has to go.
    as_placed = replace(reservation, state=State.PLACED)
    found = {risk.node_id: risk for risk in risks(as_placed, snapshot, policy)}
    views = snapshot.views
    ranked = sorted(
        reservation.members,
        key=lambda one: (views[one.node_id].place if one.node_id in views else (), one.node_id),
    )
    return {
        member.allocation_id: (
            _kind(member, found.get(member.node_id)),
            _soundness(reservation, member, snapshot, policy),
            -rank,
        )
        for rank, member in enumerate(ranked)
    }


def _kind(member: Member, risk: Risk | None) -> int:
    if member.bind is BindState.LOST:
        return _LOST
    if risk is None:
        return _SOUND
    return _SILENT if risk.code == "unreachable" else _AT_RISK


def _soundness(reservation: Reservation, member: Member, snapshot: Snapshot, policy: Policy) -> int:
    view = snapshot.views.get(member.node_id)
    if view is None:
        return 0
    request, offer = reservation.request(reservation.window), Offer(member.mask, 0)
    points = policy.score_soundness * has_nothing_held(view, request, offer)
    return points + policy.score_no_recent_fault * had_no_recent_fault(view, request, offer)
