"""A pool in whole GPUs at one instant: what the API, the page and the metrics tell of it."""

from collections import Counter, defaultdict

from sqlalchemy import Connection, and_, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import State
from muster_coordinator.core.placement.filters import group_value
from muster_coordinator.core.snapshot import NodeView, Snapshot
from muster_coordinator.core.timeline.rollup import allocatable, takes_work, whole_gpus
from muster_coordinator.service.bodies import PoolView
from muster_coordinator.store import read
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import BOOKING, RESERVATION
from muster_shared.time import Window
from muster_shared.wire import FABRIC_DOMAIN


def rolled_up(connection: Connection, at: Moment, row: PoolRow, snapshot: Snapshot) -> PoolView:
    """Add a pool up.

    Args:
        connection: In the transaction in which the pool was read.
        at: Now.
        row: The pool.
        snapshot: All of it, at the row's version.
    """
    held: defaultdict[str, int] = defaultdict(int)
    free = 0
    for view in snapshot.views.values():
        for cause, mask in view.node.held.items():
            held[cause] += view.layout.whole_gpus(mask)
        free += usable_now(view, at).bit_count()
    reserved = _booked_gpus(connection, row, snapshot, State.PLACED)
    active = _booked_gpus(connection, row, snapshot, State.BINDING, State.ACTIVE, State.ENDING)
    return PoolView(
        id=row.id,
        name=row.name,
        policy=read.policy_document(row.policy),
        nodes=len(snapshot.views),
        total=sum(len(view.layout.gpus) for view in snapshot.views.values()),
        allocatable=allocatable(snapshot),
        reserved=reserved,
        active=active,
        free=free,
        held=dict(held),
        largest_gang=_largest_gangs(snapshot, at),
        as_of=at.ms,
    )


def _booked_gpus(connection: Connection, row: PoolRow, snapshot: Snapshot, *states: State) -> int:
    wanted = (
        select(BOOKING.c.node_id, BOOKING.c.word, BOOKING.c.mask)
        .join(RESERVATION, RESERVATION.c.id == BOOKING.c.reservation_id)
        .where(and_(RESERVATION.c.pool_id == row.id, RESERVATION.c.state.in_(states), BOOKING.c.live))
    )
    masks: defaultdict[str, int] = defaultdict(int)
    for node_id, word, bits in connection.execute(wanted):
        masks[node_id] |= read.mask_of(word, bits)
    views = snapshot.views
    return sum((mask & whole_gpus(views[id_])).bit_count() for id_, mask in masks.items() if id_ in views)


def _largest_gangs(snapshot: Snapshot, at: Moment) -> dict[str, int]:
    sizes: defaultdict[str, int] = defaultdict(int)
    for view in snapshot.views.values():
        value = group_value(view, FABRIC_DOMAIN)
        if value is not None:
            sizes[value] += bool(view.atoms_mask) and usable_now(view, at) == view.atoms_mask
    return dict(sorted(sizes.items()))


def usable_now(view: NodeView, at: Moment) -> int:
    """Return the mask of the whole GPUs of a node that a request could have right now."""
    return view.free(Window(at.ms, at.ms + 1)) & ~view.held_mask & whole_gpus(view) if takes_work(view) else 0


def offered(view: NodeView, at: Moment, *, free: bool) -> dict[str, int]:
    """Return what can be booked on a node, by kind and profile: at all, or of that what is `free` right now."""
    usable = view.free(Window(at.ms, at.ms + 1)) & ~view.held_mask if takes_work(view) else 0
    kinds = Counter(f"{atom.kind} {atom.profile}".strip() for atom in view.node.atoms)
    if free:
        have = (atom for atom in view.node.atoms if usable >> atom.number & 1)
        return dict.fromkeys(kinds, 0) | Counter(f"{atom.kind} {atom.profile}".strip() for atom in have)
    return dict(kinds)
