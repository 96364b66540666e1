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
    shunned: frozenset[str] | None = None,
    keeps_place: bool = False,
) -> Repaired | Refusal:
    """Plan the repair of one booking.

    Args:
        reservation: With the members it has now; its own atoms count as free.
        bad_nodes: Nodes whose members leave: they are unsound or did not bind.
        snapshot: The pool, other bookings and maintenance included: a repair never takes from them.
        window: What is left to book: the whole window before the start, the rest of it afterwards.
        policy: Of the pool.
        seed: For chance among equals.
        shunned: Nodes that no member is moved to, the bad ones when absent; a member that is on one may stay.
        keeps_place: Nobody leaves another node, nor the gang its topology values: it is in use.

    Source: design, section 7, "The repair".
    """
    if shunned is None:
        shunned = bad_nodes
    occupied = window.occupied(policy.turnaround_ms)
    own_free = snapshot.without(reservation.id, [member.node_id for member in reservation.members])
    kept = tuple(member for member in reservation.members if member.node_id not in bad_nodes)
    if kept and len(kept) < reservation.size:
        added = _moved(reservation, kept, shunned, own_free, occupied, policy, seed)
        if not isinstance(added, Refusal):
            return Repaired(kept, added, reservation.agreed, seed)
        if keeps_place:
            return added
    own = {member.node_id for member in kept}
    within = reservation.agreed if keeps_place else ()
    request = reservation.request(occupied)
    whole = plan(own_free, request, policy, seed=seed, excluded=shunned - own, within=within)
    if isinstance(whole, Refusal):
        return whole
    return Repaired((), whole.members, whole.agreed, seed)


def _moved(
    reservation: Reservation,
    kept: tuple[Member, ...],
    shunned: frozenset[str],
    own_free: Snapshot,
    occupied: Window,
    policy: Policy,
    seed: int,
) -> tuple[Placed, ...] | Refusal:
    """Return nodes for the members that must move, each beside those it was booked with."""
    # The kept members' nodes are excluded by name; their atoms are booked again so that leftovers are true.
    kept_booked = [
        (member.node_id, Booked(occupied.start_ms, occupied.end_ms, member.mask, reservation.id)) for member in kept
    ]
    rest = own_free.with_bookings(kept_booked, own_free.version)
    taken = shunned | {member.node_id for member in kept}
    moving = Counter(member.agreed for member in reservation.members if member not in kept)
    added: tuple[Placed, ...] = ()
    for agreed, size in sorted(moving.items()):
        same_values = Grouping(required=tuple(key for key, _ in agreed))
        missing = replace(reservation.request(occupied), size=size, grouping=same_values)
        moved = plan(rest, missing, policy, seed=seed, excluded=taken, within=agreed)
        if isinstance(moved, Refusal):
            return moved
        added += moved.members
        taken |= {member.node_id for member in moved.members}
    return added
