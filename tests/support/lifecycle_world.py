"""One gang of two in a world small enough to walk whole: what its steps do, and what may happen to it.

The effects are those that the service writes; chance, agents and people are events that come in any order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from muster_coordinator.core.lifecycle.advance import next_step, pending_until_ms
from muster_coordinator.core.lifecycle.model import (
    Activate,
    Check,
    End,
    Expire,
    Free,
    Move,
    Order,
    Replace,
    Requeue,
    Step,
    moved,
)
from muster_coordinator.core.model import BindState, EndReason, Grouping, Member, Policy, Reservation, State
from tests.support.drawings import OURS, asked

START_MS, END_MS = 10, 20
POLICY = Policy(bind_timeout_ms=3, unbind_timeout_ms=2)
INSTANTS_MS = (0, START_MS, 13, 15, END_MS, 30)
"""Before the start, at it, at both time-outs counted from it, at the end, and long after."""

_EXPOSED = (BindState.BINDING, BindState.BOUND, BindState.UNBINDING)


@dataclass(frozen=True)
class World:
    """The gang, the clock, and whether the pool has nodes to replace those that fail."""

    gang: Reservation
    has_spares: bool
    now_ms: int = 0
    due_ms: int | None = None  # when it is looked at by itself while it is pending

    def next(self) -> Step | None:
        """Ask the lifecycle."""
        check_due_ms = START_MS - 1 if self.gang.state is State.PLACED and self.now_ms < START_MS else self.due_ms
        return next_step(self.gang, self.now_ms, POLICY, check_due_ms, 0)


def pending(**changes: object) -> World:
    """Return a world in which the gang has been asked for and not placed."""
    gang = Reservation(
        id=OURS,
        tenant_id="acme",
        pool_id="pool",
        state=State.PENDING,
        shape=asked().shape,
        size=2,
        grouping=Grouping(),
        start_ms=START_MS,
        duration_ms=END_MS - START_MS,
        fixed_end_ms=None,
        latest_start_ms=START_MS + 5,
        generation=0,
    )
    gang = replace(gang, **changes)  # type: ignore[arg-type]  # columns of a reservation, by name
    return World(gang, has_spares=True, due_ms=pending_until_ms(gang, 0))


def after(world: World, step: Step) -> World:
    """Return the world after one step was written."""
    gang, now_ms = world.gang, world.now_ms
    match step:
        case Expire():
            return _ended(world, EndReason.EXPIRED)
        case Requeue():
            return replace(world, due_ms=pending_until_ms(gang, now_ms))
        case Check(starting):
            return _started(world) if starting else world
        case Order(allocation_ids):
            return _with_members(
                world, lambda one: replace(one, bind=BindState.BINDING, ordered_ms=now_ms), set(allocation_ids)
            )
        case Replace(allocation_ids):
            return _replaced(world, set(allocation_ids))
        case Activate():
            since_ms = now_ms if gang.activated_ms is None else gang.activated_ms
            return replace(
                world, gang=replace(gang, state=moved(gang.state, Move.ACTIVATE), activated_ms=since_ms), due_ms=None
            )
        case End(reason):
            return ending(world, reason)
        case Free():
            return replace(world, gang=replace(gang, state=moved(gang.state, Move.FREE), members=()))


def at_rest(world: World, steps_max: int = 12) -> tuple[World, list[Step]]:
    """Take every step that is due; a check that changes nothing is taken once, as its due instant moves on."""
    taken: list[Step] = []
    while (step := world.next()) is not None and len(taken) < steps_max:
        taken.append(step)
        if step == Check(starting=False):
            break
        world = after(world, step)
    return world, taken


def events(world: World) -> Iterator[World]:
    """Yield what everything makes of the world that may happen next: time, people, agents."""
    yield from (replace(world, now_ms=ms) for ms in [ms for ms in INSTANTS_MS if ms > world.now_ms][:1])
    yield from _called(world)
    for one in world.gang.members:
        for heard in _heard(one):
            yield _with_members(world, lambda _, heard=heard: heard, {one.allocation_id})  # type: ignore[misc]  # bound in this turn of the loop


def _called(world: World) -> Iterator[World]:
    gang = world.gang
    match gang.state:
        case State.PENDING:
            yield _ended(world, EndReason.CANCELLED)
            if (window := gang.window_from(world.now_ms)) is not None:
                begun = replace(gang, start_ms=window.start_ms, duration_ms=window.duration_ms)
                yield replace(world, gang=_placed(begun), due_ms=None)
        case State.PLACED:
            yield _ended(world, EndReason.CANCELLED)
            yield _replaced(world, {gang.members[0].allocation_id}, Move.REPAIR)
            yield from _shrunk(world)
        case State.BINDING | State.ACTIVE:
            yield ending(world, EndReason.RELEASED)
            lost = {one.allocation_id for one in gang.members if one.bind is BindState.LOST}
            if gang.state is State.ACTIVE and lost and world.has_spares:
                yield _replaced(world, lost)
            yield from _shrunk(world)
        case _:
            pass


def _shrunk(world: World) -> Iterator[World]:
    """Yield the world in which the second of two members has left; what it has bound is no member's business."""
    gang = world.gang
    if gang.size > 1:
        yield replace(world, gang=replace(gang, state=moved(gang.state, Move.SHRINK), size=1, members=gang.members[:1]))


def ending(world: World, reason: EndReason) -> World:
    """Return the world in which every member is told to let go."""
    gang = replace(world.gang, state=moved(world.gang.state, Move.END), end_reason=reason)
    return _with_members(replace(world, gang=gang), _dropped, {one.allocation_id for one in gang.members})


def exposed(world: World) -> int:
    """Count members through which a tenant may still reach devices."""
    return sum(one.bind in _EXPOSED for one in world.gang.members)


def _heard(member: Member) -> list[Member]:
    """Return what a report may make of a member: its own state, or its atoms' being free at last."""
    said: dict[BindState, tuple[BindState, ...]] = {
        BindState.BINDING: (BindState.BOUND, BindState.LOST),
        BindState.BOUND: (BindState.LOST,),
        BindState.UNBINDING: (BindState.RELEASED,),
    }
    heard = [replace(member, bind=bind) for bind in said.get(member.bind, ())]
    return [*heard, replace(member, blocked=False)] if member.blocked else heard


def _placed(gang: Reservation) -> Reservation:
    generation = min(gang.generation + 1, 2)  # two are enough to tell an old one from a new one
    # The first member waits for somebody else's unbind, so that waiting is walked too.
    members = tuple(
        Member(f"{name}{generation}", f"node_{name}", 1, generation, BindState.RESERVED, blocked=name == "a")
        for name in "ab"[: gang.size]
    )
    return replace(gang, state=moved(gang.state, Move.PLACE), generation=generation, members=members)


def _started(world: World) -> World:
    state = moved(world.gang.state, Move.START)
    return replace(world, gang=replace(world.gang, state=state, binding_since_ms=world.now_ms))


def _replaced(world: World, allocation_ids: set[str], move: Move = Move.REPLACE) -> World:
    gang = world.gang
    if not world.has_spares and gang.activated_ms is not None:
        return replace(world, due_ms=world.now_ms + 1)  # it is in use: tried again later
    if not world.has_spares:
        unplaced = replace(gang, state=moved(gang.state, Move.UNPLACE), members=(), binding_since_ms=None)
        return replace(world, gang=unplaced, due_ms=pending_until_ms(unplaced, world.now_ms))
    swapped = replace(gang, state=moved(gang.state, move), generation=2)
    return _with_members(
        replace(world, gang=swapped),
        lambda one: Member(f"{one.allocation_id[0]}2", one.node_id, 1, 2, BindState.RESERVED),
        allocation_ids,
    )


def _ended(world: World, reason: EndReason) -> World:
    gang = world.gang
    over = replace(gang, state=moved(gang.state, Move.END), end_reason=reason, members=())
    return replace(world, gang=over, due_ms=None)


def _dropped(member: Member) -> Member:
    match member.bind:
        case BindState.BINDING | BindState.BOUND:
            return replace(member, bind=BindState.UNBINDING)
        case BindState.RESERVED:
            return replace(member, bind=BindState.RELEASED)
        case _:
            return member


def _with_members(world: World, change: Callable[[Member], Member], allocation_ids: set[str]) -> World:
    members = tuple(change(one) if one.allocation_id in allocation_ids else one for one in world.gang.members)
    return replace(world, gang=replace(world.gang, members=members))
