"""Somebody asks for a repair now: whatever the horizon and the storm brake, all that is at risk moves, or nothing."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.model import Move
from muster_coordinator.core.model import BindState, Member, State
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service import look
from muster_coordinator.service.advance import advance
from muster_coordinator.service.changes.cancel import Held, held
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.repairs.bodies import RepairedView, RepairRequest, RepairView
from muster_coordinator.service.repairs.repair import Repairs
from muster_shared.errors import Code, Problem

_SOUND = "every member is sound: there is nothing to repair"


@dataclass(frozen=True, slots=True)
class _Wish:
    """Which members leave, and which nodes take nobody over."""

    bad: frozenset[str]
    shunned: frozenset[str]
    keeps_place: bool  # it is in use


def repair_now(
    connection: Connection, at: Moment, reservation_id: str, request: RepairRequest, index: PoolIndex
) -> RepairedView:
    """Move the members of a reservation that are at risk, or on nodes that are to be avoided.

    Nodes that have not proven themselves yet take over only where no other can.

    Raises:
        Problem: `NOT_FOUND` for the reservation or a node; `CONFLICT` when nothing fits, when it has no members, or for
            a node on which it runs soundly. Nothing was stored.
    """
    mine = held(connection, reservation_id)
    repairs = Repairs(connection, at, mine.pool_row, index)
    wish = _wish(mine, request, repairs)
    if not wish.bad:
        return _view(connection, reservation_id, RepairView(sound=True, fits=True, message=_SOUND))
    before = _names(repairs.pool(), [one.node_id for one in mine.reservation.members])
    reservation, row = mine.reservation, mine.row
    move = Move.REPAIR if reservation.state is State.PLACED else Move.REPLACE
    refusal: Refusal | None = None
    for shunned in (repairs.untrusted | wish.shunned, wish.shunned):
        refusal = repairs.try_move(reservation, row, wish.bad, move, shunned=shunned, keeps_place=wish.keeps_place)
        if refusal is None:
            break
    if refusal is not None:
        raise Problem(Code.CONFLICT, f"{reservation_id} stays as it is: {refusal.sentence}")
    advance(connection, at, reservation_id, index)
    after = {one.node_name for one in look.reservation(connection, reservation_id).members}
    told = _told([name for name in before if name not in after], sorted(after - set(before)), is_done=True)
    return _view(connection, reservation_id, told)


def try_repair(
    connection: Connection, at: Moment, reservation_id: str, request: RepairRequest, index: PoolIndex
) -> RepairedView:
    """Tell who would take over now: plan B of a booking that is at risk.

    Raises:
        Problem: As `repair_now` would, but where nothing fits: that is the answer.
    """
    mine = held(connection, reservation_id, lock=False)
    repairs = Repairs(connection, at, mine.pool_row, index)
    wish = _wish(mine, request, repairs)
    if not wish.bad:
        return _view(connection, reservation_id, RepairView(sound=True, fits=True, message=_SOUND))
    pool = repairs.pool()
    leaving = _names(pool, wish.bad)
    shunned = repairs.untrusted | wish.shunned
    answer = repairs.plan(mine.reservation, wish.bad, shunned=shunned, keeps_place=wish.keeps_place)
    if isinstance(answer, Refusal):
        answer = repairs.plan(mine.reservation, wish.bad, shunned=wish.shunned, keeps_place=wish.keeps_place)
    if isinstance(answer, Refusal):
        told = RepairView(sound=False, fits=False, leaving=leaving, message=answer.sentence)
        return _view(connection, reservation_id, told)
    kept = {one.node_id for one in answer.kept}
    added = {one.node_id for one in answer.added}
    gone = [one.node_id for one in mine.reservation.members if one.node_id not in kept | added]
    known = {one.node_id for one in mine.reservation.members}
    told = _told(_names(pool, gone), _names(pool, added - known), is_done=False)
    return _view(connection, reservation_id, told)


def _wish(mine: Held, request: RepairRequest, repairs: Repairs) -> _Wish:
    reservation = mine.reservation
    match reservation.state:
        case State.PENDING:
            raise Problem(Code.CONFLICT, f"{reservation.id} has no nodes: it is placed by itself as soon as it fits")
        case State.ENDING | State.ENDED:
            raise Problem(Code.CONFLICT, f"{reservation.id} is {reservation.state}: reserve again")
        case _:
            pass
    avoided = frozenset(_node_id(repairs.pool(), name) for name in request.avoid)
    found, _ = repairs.found(reservation, mine.row)
    members = {one.node_id: one for one in reservation.members}
    bad = frozenset(risk.node_id for risk in found) | (avoided & members.keys())
    in_use = {node_id for node_id, one in members.items() if _is_in_use(one)}
    if reservation.state is not State.PLACED:
        # Silence, or an operator's word on its node, takes nothing from a member that runs.
        bad -= in_use - {risk.node_id for risk in found if not risk.soft and not risk.is_ordered}
        if sound := _names(repairs.pool(), avoided & in_use - bad):
            detail = f"{reservation.id} runs on {', '.join(sound)}: only members that are lost or harmed are replaced"
            raise Problem(Code.CONFLICT, detail)
    lost = {node_id for node_id, one in members.items() if one.bind is BindState.LOST}
    keeps_place = reservation.activated_ms is not None
    return _Wish(bad, avoided | (bad - lost if keeps_place else bad), keeps_place)


def _is_in_use(member: Member) -> bool:
    return member.bind is BindState.BOUND


def _node_id(pool: Snapshot, name: str) -> str:
    for view in pool.ordered:
        if name in {view.node.id, view.node.name}:
            return view.node.id
    raise Problem(Code.NOT_FOUND, f"the pool has no node {name!r}; `muster nodes` lists them")


def _names(pool: Snapshot, node_ids: Collection[str]) -> list[str]:
    return sorted(pool.views[node_id].node.name if node_id in pool.views else node_id for node_id in node_ids)


def _told(leaving: list[str], joining: list[str], *, is_done: bool) -> RepairView:
    verb = "took over" if is_done else "would take over"
    message = f"{', '.join(joining)} {verb} for {', '.join(leaving)}" if joining else f"the same nodes {verb} again"
    return RepairView(sound=False, fits=True, leaving=leaving, joining=joining, message=message)


def _view(connection: Connection, reservation_id: str, repair: RepairView) -> RepairedView:
    shown = look.reservation(connection, reservation_id)
    return RepairedView(**{name: getattr(shown, name) for name in type(shown).model_fields}, repair=repair)
