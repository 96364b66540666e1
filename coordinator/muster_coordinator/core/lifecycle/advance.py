"""What a reservation needs next, from its stored state and the clock.

Level-triggered: nothing depends on a timer having fired or a message having been seen, so a coordinator that was dead
for an hour does the right thing in its first pass. Ends are looked at before starts.
"""

from typing import Final

from muster_coordinator.core.lifecycle.model import Activate, Check, End, Expire, Free, Order, Replace, Requeue, Step
from muster_coordinator.core.model import BindState, EndReason, Member, Policy, Reservation, State

_GONE: Final = frozenset({BindState.RELEASED, BindState.FENCED, BindState.LOST})


def next_step(
    reservation: Reservation, now_ms: int, policy: Policy, check_due_ms: int | None, epoch_since_ms: int
) -> Step | None:
    """Return the next step, or None while there is nothing to do.

    Args:
        reservation: With its live members. Late, early and repeated reports have changed nothing in it.
        now_ms: The coordinator's clock, milliseconds UTC.
        policy: Of its pool.
        check_due_ms: When it is looked at next without news of it, or, while it is binding, when members that failed
            are tried to be replaced again; None where it need not be.
        epoch_since_ms: When the coordinator that runs this pool began: before, nobody was there to hear a confirmation.

    Source: design, sections 2, 3 and 7. Checked by walking every reachable state in `tests/core/test_lifecycle.py`.
    """
    match reservation.state:
        case State.PENDING:
            return _while_pending(reservation, now_ms, check_due_ms)
        case State.PLACED:
            return _while_placed(reservation, now_ms, check_due_ms)
        case State.BINDING:
            return _while_binding(reservation, now_ms, policy, check_due_ms, epoch_since_ms)
        case State.ACTIVE:
            if now_ms >= reservation.window.end_ms:
                return End(EndReason.COMPLETED)
            return Check(starting=False) if check_due_ms is not None and now_ms >= check_due_ms else None
        case State.ENDING:
            return Free() if all(member.bind in _GONE for member in reservation.members) else None
        case State.ENDED:
            return None


def pending_until_ms(reservation: Reservation, now_ms: int) -> int | None:
    """Return when a pending reservation is looked at by itself: its start passes, or it is too late for it; or None."""
    instants = [reservation.start_ms]
    if reservation.latest_start_ms is not None:
        instants.append(max(reservation.latest_start_ms, reservation.start_ms) + 1)
    if reservation.fixed_end_ms is not None:
        instants.append(reservation.fixed_end_ms)
    return min((instant for instant in instants if instant > now_ms), default=None)


def _while_pending(reservation: Reservation, now_ms: int, check_due_ms: int | None) -> Step | None:
    if reservation.window_from(now_ms) is None:
        return Expire()
    return Requeue() if check_due_ms is not None and now_ms >= check_due_ms else None


def _while_placed(reservation: Reservation, now_ms: int, check_due_ms: int | None) -> Step | None:
    if now_ms >= reservation.window.end_ms:
        return Expire()
    if now_ms >= reservation.start_ms:
        return Check(starting=True)
    if check_due_ms is not None and now_ms >= check_due_ms:
        return Check(starting=False)
    return None


def _while_binding(
    reservation: Reservation, now_ms: int, policy: Policy, check_due_ms: int | None, epoch_since_ms: int
) -> Step | None:
    if now_ms >= reservation.window.end_ms:
        return End(EndReason.EXPIRED if reservation.activated_ms is None else EndReason.COMPLETED)
    members = reservation.members
    if len(members) == reservation.size and all(member.bind is BindState.BOUND for member in members):
        return Activate()
    failed = tuple(
        member.allocation_id for member in members if _has_failed(member, reservation, now_ms, policy, epoch_since_ms)
    )
    if failed and (check_due_ms is None or now_ms >= check_due_ms):
        return Replace(failed)
    ready = tuple(member.allocation_id for member in members if member.ordered_ms is None and not member.blocked)
    return Order(ready) if ready else None


def _has_failed(member: Member, reservation: Reservation, now_ms: int, policy: Policy, epoch_since_ms: int) -> bool:
    if member.bind is BindState.BOUND:
        return False
    if member.bind is BindState.LOST:
        return True
    if member.ordered_ms is not None:
        return now_ms >= max(member.ordered_ms, epoch_since_ms) + policy.bind_timeout_ms
    if not member.blocked:
        return False  # its atoms are free by now, however long that took
    # Waiting for the previous tenant's unbind is bounded too, and longer than an unbind may take.
    since_ms = reservation.binding_since_ms if reservation.binding_since_ms is not None else reservation.start_ms
    return now_ms >= max(since_ms, epoch_since_ms) + policy.unbind_timeout_ms + policy.bind_timeout_ms
