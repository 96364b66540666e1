"""Why a reservation waits: a refusal or a lost race as the API shows it, and as it is stored."""

from sqlalchemy import Connection, RowMapping

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Reservation
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.service.bodies import Blocker, Condition
from muster_coordinator.store import commit
from muster_coordinator.store.commit import Fact, Lost
from muster_shared.codec import encode


def keep_pending(
    connection: Connection, at: Moment, current: tuple[Reservation, RowMapping], condition: Condition
) -> None:
    """Leave a reservation pending, with a reason of its own; one that has not changed is no event."""
    reservation, row = current
    written = encode(condition).decode()
    if row["condition"] != written:
        commit.record(connection, at, reservation, unschedulable(condition), condition=written)


def unschedulable(condition: Condition) -> Fact:
    """Return the event that says why a reservation waits."""
    return Fact("reservation.unschedulable", {"reason": condition.reason, "message": condition.message})


def condition_of(refusal: Refusal, *, repairing: bool = False) -> Condition:
    """Return a refusal as the API shows it."""
    return Condition(
        type="Unschedulable",
        reason="BookingRepairFailed" if repairing else refusal.code,
        message=refusal.sentence,
        blockers=[
            Blocker(reason=blocker.code, nodes=blocker.nodes, until=blocker.until_ms) for blocker in refusal.blockers
        ],
    )


def lost_race(lost: Lost) -> Condition:
    """Return a race that was lost in every round as the API shows it."""
    nodes = len(lost.node_ids)
    message = f"lost the race for {nodes} node{'' if nodes == 1 else 's'} in every round; it is tried again by itself"
    return Condition(type="Unschedulable", reason="lostRace", message=message)
