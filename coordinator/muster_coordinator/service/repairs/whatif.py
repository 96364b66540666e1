"""What a loss of nodes would do to the bookings of a pool: read, foretold by the repair's planner, nothing written."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, RowMapping, func, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState, Member, Reservation, State
from muster_coordinator.core.repair.whatif import Fate, Loss, foretell
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service import draft as drafts
from muster_coordinator.service import when
from muster_coordinator.service.admit import DEFAULT_POOL
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.repairs.whatif_bodies import FateView, Lost, Outcome, WhatIfRequest, WhatIfView
from muster_coordinator.store import read
from muster_coordinator.store.documents import as_agreed
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import ALLOCATION, BOOKING, RESERVATION
from muster_shared.errors import Code, Problem, invalid
from muster_shared.time import MS_MAX, Window, format_instant

_BOOKED: Final = (State.PLACED, State.BINDING, State.ACTIVE)


@dataclass(frozen=True, slots=True)
class Question:
    """All that the answer depends on, as it was read."""

    pool_row: PoolRow
    snapshot: Snapshot
    loss: Loss
    is_for_good: bool
    rows: Mapping[str, RowMapping]  # reservations with members on the lost nodes, by id
    reservations: tuple[Reservation, ...]
    untouched: int
    now_ms: int
    seed: int


def asked(connection: Connection, at: Moment, request: WhatIfRequest, index: PoolIndex) -> Question:
    """Read what is needed to tell what would become of the bookings of a pool if nodes were lost at an instant.

    Raises:
        Problem: `NOT_FOUND` for the pool, or nodes that nobody has; `INVALID_INPUT` for an instant that has passed.
    """
    name = request.pool_id or DEFAULT_POOL
    pool_row = read.pool(connection, name)
    if pool_row is None:
        raise drafts.pool_missing(name)
    window = _window(request, at.ms)
    snapshot = index.snapshot(connection, pool_row, at)
    loss = Loss(frozenset(one for lost in request.lose for one in _found(snapshot, lost, pool_row.name)), window)
    rows = _rows(connection, loss.node_ids)
    booked = select(func.count()).select_from(RESERVATION)
    booked = booked.where(RESERVATION.c.pool_id == pool_row.id, RESERVATION.c.state.in_(_BOOKED))
    return Question(
        pool_row,
        snapshot,
        loss,
        request.duration is None,
        rows,
        _reservations(connection, rows),
        connection.execute(booked).scalar_one() - len(rows),
        at.ms,
        at.new_seed(),
    )


def answered(question: Question) -> WhatIfView:
    """Tell what would become of them: without a connection, since a large storm takes a second to foretell."""
    snapshot, loss = question.snapshot, question.loss
    policy, now_ms = question.pool_row.policy, question.now_ms
    fates = foretell(question.reservations, snapshot, loss, policy, now_ms=now_ms, seed=question.seed)
    items = [_view(fate, question.rows[fate.reservation.id], snapshot) for fate in fates]
    return WhatIfView(
        pool_id=question.pool_row.id,
        at=loss.window.start_ms,
        until=None if question.is_for_good else loss.window.end_ms,
        lost=_names(snapshot, loss.node_ids),
        outcomes=dict(sorted(Counter(item.outcome for item in items).items())),
        untouched=question.untouched,
        items=items,
        as_of=now_ms,
    )


def _window(request: WhatIfRequest, now_ms: int) -> Window:
    start_ms = when.instant("at", "now" if request.at is None else request.at, now_ms)
    if start_ms < now_ms:
        raise invalid("at", f"{format_instant(start_ms)} has passed; leave it out to lose them now")
    end_ms = MS_MAX if request.duration is None else start_ms + when.length("duration", request.duration)
    if not start_ms < end_ms <= MS_MAX:
        raise invalid("at" if request.duration is None else "duration", "ends after the year 9999")
    return Window(start_ms, end_ms)


def _found(snapshot: Snapshot, lost: Lost, pool_name: str) -> list[str]:
    nodes = (view.node for view in snapshot.ordered)
    if lost.key == "node":
        found = [node.id for node in nodes if lost.value in {node.id, node.name}]
    else:
        found = [node.id for node in nodes if node.labels.get(lost.key) == lost.value]
    if not found:
        named = "named" if lost.key == "node" else f"with {lost.key}"
        detail = f"pool {pool_name} has no node {named} {lost.value!r}; `muster nodes` lists them"
        raise Problem(Code.NOT_FOUND, detail)
    return found


def _rows(connection: Connection, node_ids: Collection[str]) -> dict[str, RowMapping]:
    """Return the reservations that have members on these nodes, by id."""
    live = select(ALLOCATION.c.reservation_id).where(ALLOCATION.c.node_id.in_(node_ids), ALLOCATION.c.live)
    wanted = select(RESERVATION).where(RESERVATION.c.id.in_(live), RESERVATION.c.state.in_(_BOOKED))
    return {row["id"]: row for row in connection.execute(wanted).mappings()}


def _reservations(connection: Connection, rows: Mapping[str, RowMapping]) -> tuple[Reservation, ...]:
    wanted = (
        select(ALLOCATION, BOOKING.c.word, BOOKING.c.mask)
        .join(BOOKING, BOOKING.c.allocation_id == ALLOCATION.c.id)
        .where(ALLOCATION.c.reservation_id.in_(list(rows)), ALLOCATION.c.live)
        .order_by(ALLOCATION.c.node_id)
    )
    found: dict[str, RowMapping] = {}
    masks: defaultdict[str, int] = defaultdict(int)
    for row in connection.execute(wanted).mappings():
        found[row["id"]] = row
        masks[row["id"]] |= read.mask_of(row["word"], row["mask"])
    members: defaultdict[str, list[Member]] = defaultdict(list)
    for row in found.values():
        members[row["reservation_id"]].append(
            Member(
                allocation_id=row["id"],
                node_id=row["node_id"],
                mask=masks[row["id"]],
                generation=row["generation"],
                bind=BindState(row["bind_state"]),
                agreed=as_agreed(row["agreed"]),
            )
        )
    return tuple(read.as_reservation(row, members[id_]) for id_, row in rows.items())


def _view(fate: Fate, row: RowMapping, snapshot: Snapshot) -> FateView:
    one, lost = fate.reservation, _names(snapshot, fate.lost)
    return FateView(
        reservation_id=one.id,
        tenant_id=one.tenant_id,
        name=row["name"],
        state=one.state,
        start=one.start_ms,
        end=one.window.end_ms,
        gang_size=one.size,
        outcome=_outcome(fate, row["on_member_loss"]),
        lost=lost,
        nodes=_names(snapshot, fate.node_ids),
        message=_message(fate, row["on_member_loss"], ", ".join(lost)),
    )


def _outcome(fate: Fate, on_member_loss: str) -> Outcome:
    match fate.outcome:
        case "over" | "later":
            return "survives"
        case "moves" | "fails":
            return fate.outcome
        case "hit":
            return "ends" if on_member_loss == "release" else "degraded"


def _message(fate: Fate, on_member_loss: str, lost: str) -> str:
    match fate.outcome:
        case "over":
            return "it is over by then"
        case "later":
            return "it begins once they are back"
        case "moves":
            return f"it is repaired without {lost}"
        case "fails":
            assert fate.refusal is not None, "what fails was refused"
            return fate.refusal.sentence
        case "hit":
            return {
                "replace": f"it runs; {lost} is replaced once that is confirmed dead",
                "release": "it runs, and ends as it asked to when it loses a member",
            }.get(on_member_loss, f"it runs on without {lost}, and its owner is told")


def _names(snapshot: Snapshot, node_ids: Collection[str]) -> list[str]:
    """Return what people call these nodes, in the order of their names."""
    views = (snapshot.views[node_id] for node_id in node_ids if node_id in snapshot.views)
    return [view.node.name for view in sorted(views, key=lambda view: (view.place, view.node.id))]
