"""How long a reservation can be kept where it is: its longest end, and what stands behind it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from muster_coordinator.core.model import Policy, Reservation
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.time import MS_MAX

LimitCode = Literal["booked", "maxDuration", "lookAhead", "calendarEnd"]


@dataclass(frozen=True, slots=True)
class Limit:
    """Why a reservation cannot end later."""

    code: LimitCode
    node_id: str = ""  # where somebody else has some of its atoms; empty for the pool's own limits
    holder_id: str = ""  # a reservation, or a maintenance window
    start_ms: int = 0
    until_ms: int = 0  # of what is booked there, turnaround included


@dataclass(frozen=True, slots=True)
class Reach:
    """The longest end that a reservation can have where it is, ms UTC. It is never before the present one."""

    end_ms: int
    limit: Limit


def longest_end(reservation: Reservation, snapshot: Snapshot, policy: Policy, now_ms: int) -> Reach:
    """Return how far a reservation could be extended in place.

    Every member keeps its node and its atoms, and the pool's turnaround counts before whoever comes next. A longer
    window is allowed where it could be asked for anew: its start within the pool's look-ahead, its length within the
    pool's longest. Without members, as while it is pending, only the pool's limits count.

    Args:
        reservation: With its live members; its own bookings do not stand in the way.
        snapshot: At least the members' nodes, with maintenance that is declared or booked.
        policy: Of the pool.
        now_ms: The coordinator's clock.

    Source: design, sections 2 and 3.
    """
    present_ms = reservation.window.end_ms
    limits = [*_booked(reservation, snapshot, policy), *_allowed(reservation, policy, now_ms)]
    end_ms, limit = min(limits, key=lambda one: (one[0], one[1].start_ms, one[1].node_id, one[1].holder_id))
    return Reach(max(end_ms, present_ms), limit)


def _booked(reservation: Reservation, snapshot: Snapshot, policy: Policy) -> Iterator[tuple[int, Limit]]:
    present_ms = reservation.window.end_ms
    for member in reservation.members:
        view = snapshot.views.get(member.node_id)
        for one in () if view is None else view.node.booked:
            # Atoms that a former holder has not let go of are nobody's booking: waiting for them is the start's affair.
            is_others = one.reservation_id not in {"", reservation.id}
            # What began before our end and lasts beyond it is maintenance that waits for us to leave.
            if is_others and one.mask & member.mask and one.end_ms > present_ms:
                limit = Limit("booked", member.node_id, one.reservation_id, one.start_ms, one.end_ms)
                yield max(present_ms, one.start_ms - policy.turnaround_ms), limit


def _allowed(reservation: Reservation, policy: Policy, now_ms: int) -> Iterator[tuple[int, Limit]]:
    if reservation.start_ms > now_ms + policy.look_ahead_ms:
        yield reservation.window.end_ms, Limit("lookAhead")
    yield reservation.start_ms + policy.max_duration_ms, Limit("maxDuration")
    yield MS_MAX, Limit("calendarEnd")
