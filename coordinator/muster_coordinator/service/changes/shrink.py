"""A gang gets smaller: members leave, the others stay as they are."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.model import Move
from muster_coordinator.core.model import Member, State
from muster_coordinator.core.repair.shrink import leaving, split_segments
from muster_coordinator.service import look
from muster_coordinator.service.access.guard import Guard, of_reservation
from muster_coordinator.service.access.weight import weight_of_reservation
from muster_coordinator.service.accounts.charge import charge_less
from muster_coordinator.service.advance import advance
from muster_coordinator.service.changes.bodies import ShrinkRequest, ShrunkView
from muster_coordinator.service.changes.cancel import Held, held
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.waiting import pending_columns
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.tables import NODE
from muster_shared.errors import Code, Problem, invalid


def shrink(
    connection: Connection,
    at: Moment,
    reservation_id: str,
    request: ShrinkRequest,
    index: PoolIndex,
    guard: Guard | None = None,
) -> ShrunkView:
    """Let members of a gang go. Its size is smaller from now on; their atoms are free once their nodes confirm it.

    Raises:
        Problem: `NOT_FOUND`; `FORBIDDEN`; `INVALID_INPUT` for a size that is none or a node that is no member;
            `CONFLICT` when it is ending. Nothing was stored.
    """
    mine = held(connection, reservation_id)
    _check(connection, guard, mine, request.to or 1)  # before anything is told of its state
    size, gone, names = _decided(connection, at, mine, request)
    _check(connection, guard, mine, size)
    if size < mine.reservation.size:
        _write(connection, at, mine, size, gone)
        advance(connection, at, reservation_id, index)
    return _view(connection, reservation_id, names)


def try_shrink(
    connection: Connection, at: Moment, reservation_id: str, request: ShrinkRequest, guard: Guard | None = None
) -> ShrunkView:
    """Tell which members would leave.

    Raises:
        Problem: As `shrink` would.
    """
    mine = held(connection, reservation_id, lock=False)
    _check(connection, guard, mine, request.to or 1)
    size, _, names = _decided(connection, at, mine, request)
    _check(connection, guard, mine, size)
    return _view(connection, reservation_id, names)


def _check(connection: Connection, guard: Guard | None, mine: Held, size: int) -> None:
    one = mine.reservation
    if guard is not None:
        guard.check(connection, of_reservation(one, mine.pool_row), weight_of_reservation(one, size=size))


def _view(connection: Connection, reservation_id: str, dropped: list[str]) -> ShrunkView:
    shown = look.reservation(connection, reservation_id)
    return ShrunkView(**{name: getattr(shown, name) for name in type(shown).model_fields}, dropped=dropped)


def _decided(
    connection: Connection, at: Moment, mine: Held, request: ShrinkRequest
) -> tuple[int, tuple[Member, ...], list[str]]:
    """Return the new size, the members that leave, and the names of their nodes."""
    one = mine.reservation
    if one.state in {State.ENDING, State.ENDED}:
        raise Problem(Code.CONFLICT, f"{one.id} is {one.state} ({one.end_reason}): all of it is given back anyway")
    if (request.to is None) == (request.drop is None):
        raise invalid("to", "give either how many nodes stay, or drop and which leave")
    node_ids = {member.node_id for member in one.members}
    named = connection.execute(select(NODE.c.id, NODE.c.name).where(NODE.c.id.in_(node_ids)))
    names = {row.id: row.name for row in named}
    if request.drop is not None:
        gone = _named(mine, names, request.drop)
        size = one.size - len(gone)
    else:
        size = _smaller(mine, request.to or one.size)
        nodes = read.snapshot(connection, mine.pool_row, at.ms, node_ids)
        gone = leaving(one, size, nodes, mine.pool_row.policy) if one.members else ()
    return size, gone, sorted(names[member.node_id] for member in gone)


def _smaller(mine: Held, size: int) -> int:
    one, unit = mine.reservation, mine.reservation.grouping.segment_size
    if size > one.size:
        raise invalid("to", f"the gang has {one.size}, and a gang cannot grow: reserve another one beside it")
    if unit and size % unit:
        raise invalid("to", f"the gang is made of segments of {unit} nodes: say a multiple of it")
    return size


def _named(mine: Held, node_names: Mapping[str, str], names: Collection[str]) -> tuple[Member, ...]:
    one = mine.reservation
    by_name = {node_names[member.node_id]: member for member in one.members}
    known = {**{member.node_id: member for member in one.members}, **by_name}
    if not one.members:
        raise invalid("drop", "it has no members yet: say with to how many nodes it asks for")
    for number, name in enumerate(names):
        if name not in known:
            raise invalid(f"drop.{number}", f"{name!r} is no member; there are {', '.join(sorted(by_name))}")
    wanted = {known[name].allocation_id for name in names}
    gone = tuple(member for member in one.members if member.allocation_id in wanted)
    if len(gone) == one.size:
        raise invalid("drop", "these are all of its members: cancel or release the reservation instead")
    if split := split_segments(one, gone):
        values = "; ".join(" ".join(value for _, value in agreed) for agreed in split)
        unit = one.grouping.segment_size
        raise invalid("drop", f"segments of {unit} nodes leave whole: name all of one, or none, in {values}")
    return gone


def _write(connection: Connection, at: Moment, mine: Held, size: int, gone: Collection[Member]) -> None:
    one = mine.reservation
    data = {"formerSize": one.size, "size": size, "nodeIds": sorted(member.node_id for member in gone)}
    fact = Fact("reservation.shrunk", data)
    changes: dict[str, Any] = {"size": size}
    charge_less(connection, at, one, size)
    if one.state is State.PENDING:
        changes |= pending_columns(replace(one, size=size), at.ms)
        commit.record(connection, at, one, fact, **changes)
        commit.pool_changed(connection, one.pool_id, ())  # it may fit now, or what it gave back may help another
        return
    commit.drop(connection, at, one.pool_id, [member.allocation_id for member in gone], leave_gang=True)
    if one.state is not State.BINDING:
        changes["check_due_ms"] = at.ms  # what was wrong may have left with them
    commit.record(connection, at, one, fact, Move.SHRINK, **changes)
