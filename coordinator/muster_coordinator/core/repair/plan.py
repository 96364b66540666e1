"""Which nodes take over: as few moves as possible inside the same topology values, else the whole gang again."""

from collections import Counter
from dataclasses import dataclass, replace

from muster_coordinator.core.model import Agreed, Booked, Grouping, Member, Policy, Reservation
from muster_coordinator.core.placement.pipeline import Placed, plan
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.time import Window


@dataclass(frozen=True, slots=True)
class Repaired:
    """The gang after the repair: members that stay, and nodes that come in their place."""

    kept: tuple[Member, ...]
    added: tuple[Placed, ...]
    agreed: Agreed
    seed: int


def plan_repair(
    reservation: Reservation,
    bad_nodes: frozenset[str],
    snapshot: Snapshot,
    window: Window,
    policy: Policy,
    *,
    seed: int,
) -> Repaired | Refusal:
    """Plan the repair of one booking.

    Args:
        reservation: With the members it has now; its own atoms count as free.
        bad_nodes: Nodes to avoid: those whose members are unsound or did not bind.
        snapshot: The pool, other bookings and maintenance included: a repair never takes from them.
        window: What is left to book: the whole window before the start, the rest of it afterwards.
        policy: Of the pool.
        seed: For chance among equals.

    Source: design, section 7, "The repair".
    """
    occupied = window.occupied(policy.turnaround_ms)
    own_free = snapshot.without(reservation.id, [member.node_id for member in reservation.members])
    kept = tuple(member for member in reservation.members if member.node_id not in bad_nodes)
    if kept and len(kept) < reservation.size:
        added = _moved(reservation, kept, bad_nodes, own_free, occupied, policy, seed)
        if added is not None:
            return Repaired(kept, added, reservation.agreed, seed)
    whole = plan(own_free, reservation.request(occupied), policy, seed=seed, excluded=bad_nodes)
    if isinstance(whole, Refusal):
        return whole
    return Repaired((), whole.members, whole.agreed, seed)


def _moved(
    reservation: Reservation,
    kept: tuple[Member, ...],
    bad_nodes: frozenset[str],
    own_free: Snapshot,
    occupied: Window,
    policy: Policy,
    seed: int,
) -> tuple[Placed, ...] | None:
    """Return nodes for the members that must move, each beside those it was booked with; None where one finds none."""
    rest = own_free
    # The kept members' nodes are excluded by name; their atoms are booked again so that leftovers are true.
    for member in kept:
        rest = rest.with_booking(
            member.node_id, Booked(occupied.start_ms, occupied.end_ms, member.mask, reservation.id)
        )
    taken = bad_nodes | {member.node_id for member in kept}
    moving = Counter(member.agreed for member in reservation.members if member not in kept)
    added: tuple[Placed, ...] = ()
    for agreed, size in sorted(moving.items()):
        same_values = Grouping(required=tuple(key for key, _ in agreed))
        missing = replace(reservation.request(occupied), size=size, grouping=same_values)
        moved = plan(rest, missing, policy, seed=seed, excluded=taken, within=agreed)
        if isinstance(moved, Refusal):
            return None
        added += moved.members
        taken |= {member.node_id for member in moved.members}
    return added
