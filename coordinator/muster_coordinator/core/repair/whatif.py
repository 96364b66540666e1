"""What a loss of nodes would do to the calendar: the repair's own plans, one after the other, and nothing changes."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from muster_coordinator.core.model import Booked, Policy, Reservation, State
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.repair.check import risks
from muster_coordinator.core.repair.plan import Repaired, plan_repair
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.time import Window

Outcome = Literal["over", "later", "moves", "fails", "hit"]
"""It ends before the loss; it begins after it; it is repaired; nothing fits; it is running and stays where it is."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Nodes that are gone for a while, or for good."""

    node_ids: frozenset[str]
    window: Window


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one booking that has members on lost nodes."""

    reservation: Reservation
    outcome: Outcome
    lost: tuple[str, ...]  # ids of its nodes that are lost
    node_ids: tuple[str, ...]  # where it is booked afterwards
    refusal: Refusal | None = None  # why nothing fits


def foretell(
    reservations: Iterable[Reservation], snapshot: Snapshot, loss: Loss, policy: Policy, *, now_ms: int, seed: int
) -> tuple[Fate, ...]:
    """Return the fate of every booking on lost nodes, in the order in which a storm repairs them.

    Soonest start first, then the largest gang, then the oldest; each takes what those before it have left. What is
    running when the nodes are lost is not moved. What fails is pending then and tried again like any other; that
    others' failures may leave room for it is not foretold.

    Args:
        reservations: With their members; those that are ending, and those beside the loss, have no fate.
        snapshot: The pool as it is.
        loss: Which nodes, and when.
        policy: Of the pool.
        now_ms: The coordinator's clock; no later than the loss.
        seed: For chance among equals.

    Source: design, section 7, "Order in a storm".
    """
    gone = (view.node for node_id, view in snapshot.views.items() if node_id in loss.node_ids)
    left = snapshot.with_nodes(
        snapshot.version, [replace(node, silent_since_ms=loss.window.start_ms) for node in gone], now_ms
    )
    fates: list[Fate] = []
    for one in sorted(reservations, key=lambda one: (one.start_ms, -one.size, one.created_ms, one.id)):
        fate = _fate(one, left, loss, policy, now_ms, seed)
        if fate is not None:
            fates.append(fate[0])
            left = fate[1]
    return tuple(fates)


def _fate(
    one: Reservation, left: Snapshot, loss: Loss, policy: Policy, now_ms: int, seed: int
) -> tuple[Fate, Snapshot] | None:
    lost = tuple(member.node_id for member in one.members if member.node_id in loss.node_ids)
    if not lost or one.state not in {State.PLACED, State.BINDING, State.ACTIVE}:
        return None
    before = tuple(member.node_id for member in one.members)
    if not one.window.overlaps(loss.window):
        return Fate(one, "over" if one.window.end_ms <= loss.window.start_ms else "later", lost, before), left
    if _is_running(one, loss, now_ms):
        return Fate(one, "hit", lost, before), left
    begin_ms = max(one.start_ms, loss.window.start_ms)
    rest = Window(begin_ms, one.window.end_ms)
    found = risks(one, left, policy)
    # Maintenance alone moves nobody who has no other place.
    bad = frozenset(lost) | {risk.node_id for risk in found if risk.code != "maintenance" and risk.is_hard(now_ms)}
    answer = plan_repair(one, bad, left, rest, policy, seed=seed)
    freed = left.without(one.id, before)
    if isinstance(answer, Refusal):
        return Fate(one, "fails", lost, (), answer), freed
    return _moved(one, answer, lost, freed, rest.occupied(policy.turnaround_ms))


def _is_running(one: Reservation, loss: Loss, now_ms: int) -> bool:
    """What has not begun now, and will have by then, is taken to run by then. At one instant repairs go first."""
    return one.state is State.ACTIVE or (now_ms < loss.window.start_ms and one.start_ms < loss.window.start_ms)


def _moved(
    one: Reservation, answer: Repaired, lost: tuple[str, ...], freed: Snapshot, occupied: Window
) -> tuple[Fate, Snapshot]:
    kept = [(member.node_id, member.mask) for member in answer.kept]
    members = [*kept, *((new.node_id, new.mask) for new in answer.added)]
    bookings = [(node_id, Booked(occupied.start_ms, occupied.end_ms, mask, one.id)) for node_id, mask in members]
    fate = Fate(one, "moves", lost, tuple(node_id for node_id, _ in members))
    return fate, freed.with_bookings(bookings, freed.version)
