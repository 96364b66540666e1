"""Which nodes take over: as few moves as possible inside the same topology value, else the whole gang again."""

from dataclasses import dataclass, replace

from muster_coordinator.core.model import Booked, Member, Reservation
from muster_coordinator.core.placement.pipeline import Placed, plan
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.time import Window


@dataclass(frozen=True, slots=True)
class Repaired:
    """The gang after the repair: members that stay, and nodes that come in their place."""

    kept: tuple[Member, ...]
    added: tuple[Placed, ...]
    topology_value: str | None
    seed: int


def plan_repair(
    reservation: Reservation,
    bad_nodes: frozenset[str],
    snapshot: Snapshot,
    window: Window,
    *,
    seed: int,
    top_n: int,
    turnaround_ms: int,
) -> Repaired | Refusal:
    """Plan the repair of one booking.

    Args:
        reservation: With the members it has now; its own atoms count as free.
        bad_nodes: Nodes to avoid: those whose members are unsound or did not bind.
        snapshot: The pool, other bookings and maintenance included: a repair never takes from them.
        window: What is left to book: the whole window before the start, the rest of it afterwards.
        seed: For chance among equals.
        top_n: Of the pool's policy.
        turnaround_ms: Of the pool's policy.

    Source: design, section 7, "The repair".
    """
    occupied = window.occupied(turnaround_ms)
    kept = tuple(member for member in reservation.members if member.node_id not in bad_nodes)
    own_free = snapshot.without(reservation.id)
    if kept and len(kept) < reservation.size:
        missing = replace(reservation.request(occupied), size=reservation.size - len(kept))
        taken = {member.node_id for member in kept}
        # The kept members' nodes are excluded by name; their atoms are booked again so that leftovers are true.
        rest = own_free
        for member in kept:
            rest = rest.with_booking(
                member.node_id, Booked(occupied.start_ms, occupied.end_ms, member.mask, reservation.id)
            )
        moved = plan(
            rest, missing, seed=seed, top_n=top_n, excluded=bad_nodes | taken, within=reservation.topology_value
        )
        if not isinstance(moved, Refusal):
            return Repaired(kept, moved.members, reservation.topology_value, seed)
    whole = plan(own_free, reservation.request(occupied), seed=seed, top_n=top_n, excluded=bad_nodes)
    if isinstance(whole, Refusal):
        return whole
    return Repaired((), whole.members, whole.topology_value, seed)
