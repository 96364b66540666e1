"""Is a booking still sound? One answer for each member that is not."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from muster_coordinator.core.model import BindState, Member, Policy, Reservation, State
from muster_coordinator.core.placement.filters import group_value
from muster_coordinator.core.snapshot import NodeView, Snapshot
from muster_shared.time import Window

RiskCode = Literal[
    "memberLost",
    "nodeGone",
    "cordoned",
    "draining",
    "leased",
    "unreachable",
    "deviceLost",
    "held",
    "topologyChanged",
    "maintenance",
]


@dataclass(frozen=True, slots=True)
class Risk:
    """What is wrong with one member."""

    node_id: str
    code: RiskCode
    cause: str = ""  # the hold's cause, or the topology's new value
    soft: bool = False  # unknown rather than bad: moved only close to the start ...
    hardens_ms: int | None = None  # ... or once it has lasted until then
    is_for_maintenance: bool = False  # maintenance waits for it: moved at once where that can be, else it may stay
    since_ms: int | None = None  # None while nobody has taken it down

    def is_hard(self, now_ms: int) -> bool:
        """Is it bad, or unknown for so long that it is treated alike?"""
        return not self.soft or (self.hardens_ms is not None and now_ms >= self.hardens_ms)

    @property
    def is_ordered(self) -> bool:
        """Is it what people decided, and no sign of a fault?"""
        return self.code in _ORDERED

    def counts_from_ms(self, policy: Policy) -> int:
        """Return from when on it may move anything: what is only unknown must have lasted for `unhealthyAfter`."""
        return (self.since_ms or 0) + policy.unhealthy_after_ms if self.soft else 0

    @property
    def sentence(self) -> str:
        """What is wrong, for people."""
        return f"{_WORDS[self.code]}{f' ({self.cause})' if self.cause else ''}"


_WORDS: Final[dict[RiskCode, str]] = {
    "memberLost": "the node no longer has it bound",
    "nodeGone": "the node left the pool",
    "cordoned": "the node is cordoned",
    "draining": "the node is draining",
    "leased": "the node is leased as a whole machine",
    "unreachable": "the node is silent",
    "deviceLost": "a booked device is gone",
    "held": "a booked device is on hold",
    "topologyChanged": "the node is on another topology value than it was booked with",
    "maintenance": "the node will be in maintenance",
}


_ORDERED: Final[frozenset[RiskCode]] = frozenset({"cordoned", "draining", "leased", "maintenance"})

_AT_ONCE: Final[frozenset[RiskCode]] = frozenset({"draining", "nodeGone"})
"""Moved whatever the horizon: somebody waits for the node to be empty, or it never comes back."""

_NO_HARM_TO_TENANTS: Final[frozenset[RiskCode]] = frozenset(
    {"cordoned", "draining", "leased", "unreachable", "maintenance"}
)


def risks(reservation: Reservation, snapshot: Snapshot, policy: Policy) -> tuple[Risk, ...]:
    """Return what is wrong with a reservation, at most one answer for each member.

    What only keeps new work away (an operator's intent, silence) is no harm to a gang that is active.

    A topology value that is only absent (settling, in progress) is unknown, not changed: it is a soft risk.

    Source: design, section 7, "The check".
    """
    occupied = reservation.window.occupied(policy.turnaround_ms)
    found = (
        _with_maintenance(_risk(member, snapshot, policy), member.node_id, snapshot, occupied)
        for member in reservation.members
    )
    known = tuple(risk for risk in found if risk is not None)
    if reservation.state is State.ACTIVE:
        return tuple(risk for risk in known if not risk.soft and risk.code not in _NO_HARM_TO_TENANTS)
    return known


def _risk(member: Member, snapshot: Snapshot, policy: Policy) -> Risk | None:
    node_id, mask = member.node_id, member.mask
    view = snapshot.views.get(node_id)
    if member.bind is BindState.LOST:
        return Risk(node_id, "memberLost", member.reason or "")
    if view is None:
        return Risk(node_id, "nodeGone")
    if mask & ~view.atoms_mask:
        return Risk(node_id, "deviceLost")
    for cause, held in sorted(view.node.held.items()):
        if held & mask:
            return Risk(node_id, "held", cause)
    return _topology_risk(member, view) or _node_risk(view, policy)


def _with_maintenance(risk: Risk | None, node_id: str, snapshot: Snapshot, occupied: Window) -> Risk | None:
    """Return the risk of a member, or of one that is sound, with what maintenance wants of it."""
    view = snapshot.views.get(node_id)
    for one in () if view is None else view.node.maintenance:
        if one.window.overlaps(occupied):
            return replace(risk or Risk(node_id, "maintenance", one.id), is_for_maintenance=True)
    return risk


def _node_risk(view: NodeView, policy: Policy) -> Risk | None:
    if view.node.intent != "schedulable":
        return Risk(view.node.id, view.node.intent)
    if view.node.leased:
        return Risk(view.node.id, "leased")
    if view.node.silent_since_ms is not None:
        hardens_ms = view.node.silent_since_ms + policy.silence_repair_after_ms
        since_ms = view.node.silent_since_ms
        return Risk(view.node.id, "unreachable", soft=True, hardens_ms=hardens_ms, since_ms=since_ms)
    return None


def _topology_risk(member: Member, view: NodeView) -> Risk | None:
    unknown = False
    for key, booked_value in member.agreed:
        value = group_value(view, key)
        if value is None:
            unknown = True
        elif value != booked_value:
            return Risk(view.node.id, "topologyChanged", value)
    return Risk(view.node.id, "topologyChanged", soft=True) if unknown else None


def due_repair(reservation: Reservation, found: Iterable[Risk], now_ms: int, policy: Policy) -> frozenset[str]:
    """Return the nodes whose members must move now.

    What is bad moves once the start is within `repairHorizon`; what is only unknown, once it is within `repairLead`,
    and never before it has lasted for `unhealthyAfter`. Maintenance alone makes no booking bad: see
    `Risk.is_for_maintenance`.

    Source: design, section 7.
    """
    until_start_ms = reservation.start_ms - now_ms
    return frozenset(
        risk.node_id
        for risk in found
        if risk.code in _AT_ONCE
        or (
            risk.code != "maintenance"
            and now_ms >= risk.counts_from_ms(policy)
            and until_start_ms <= (policy.repair_horizon_ms if risk.is_hard(now_ms) else policy.repair_lead_ms)
        )
    )


def dated(found: Iterable[Risk], known: Mapping[tuple[str, str], int], now_ms: int) -> tuple[Risk, ...]:
    """Give each risk the instant since when it has been known.

    Args:
        found: By a look at the members now.
        known: By node and code, what an earlier look found, and when.
        now_ms: For what is new.
    """
    return tuple(
        risk if risk.since_ms is not None else replace(risk, since_ms=known.get((risk.node_id, risk.code), now_ms))
        for risk in found
    )


def next_check_ms(reservation: Reservation, found: Collection[Risk], now_ms: int, policy: Policy) -> int | None:
    """Return when the booking is looked at again; None where only its start is left.

    Risks that wait for their hour are looked at when it comes; sound bookings at start - `repairLead`.
    """
    hours = [reservation.start_ms - policy.repair_lead_ms]
    if found:
        hours.append(reservation.start_ms - policy.repair_horizon_ms)
    hours += [risk.hardens_ms for risk in found if risk.hardens_ms is not None]
    if any(risk.is_for_maintenance for risk in found):
        hours.append(now_ms + policy.retry_interval_ms)  # nothing else fitted: perhaps something does by then
    hours += [risk.counts_from_ms(policy) for risk in found if risk.soft]
    return min((hour for hour in hours if hour > now_ms), default=None)
