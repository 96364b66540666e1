"""An agent's report: facts, holds and bind confirmations, fenced by `(boot, seq)`, `appliedRev` and generation."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    RowMapping,
    String,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState, State
from muster_coordinator.core.repair.flaps import NO_DATA
from muster_coordinator.service.accounts import metering
from muster_coordinator.service.nodes.atoms import keep_atoms, slots_of
from muster_coordinator.service.repairs.signs import HoldKey, sign_columns
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import HELD_BY_NODE
from muster_coordinator.store.tables import ALLOCATION, HOLD, NODE, RESERVATION
from muster_shared.codec import dumps, encode, loads
from muster_shared.errors import Code, Problem
from muster_shared.wire import EXPOSED, AssignmentStatus, Hold, Inventory, Report, ReportAnswer

_REV_MAX: Final = 1 << 52  # one change a microsecond for a century, and still exact wherever JSON is read
_PAST_BOOTS: Final = 16  # late reports of older boots than these would have to be days late
_EARLY_MS: Final = 30_000  # nodes end early, by the round trip of the order that told them (at most its time-out)
_MEASURED: Final = ("fabric.", "gpu.", "driver.")
"""Label prefixes that an agent may set: what steers placement otherwise is the operator's."""


# Built once: in a fleet's heartbeats, building a statement costs more than running it.
_OF_NODE: Final = bindparam("node_id", type_=String)
_POOL_OF: Final = select(NODE.c.pool_id).where(NODE.c.id == _OF_NODE)
_NODE_LOCKED: Final = select(NODE).where(NODE.c.id == _OF_NODE).with_for_update()
_HOLDS_OF: Final = select(HOLD).where(HOLD.c.node_id == _OF_NODE)
_IDS: Final = bindparam("ids", type_=String, expanding=True)
_BOOKED_ON: Final = (
    select(ALLOCATION.c.reservation_id).distinct().where(ALLOCATION.c.node_id.in_(_IDS), ALLOCATION.c.live)
)
_STATES: Final = select(RESERVATION.c.id, RESERVATION.c.state).where(RESERVATION.c.id.in_(_IDS))
_LOOKED_AT_AGAIN: Final = (
    update(RESERVATION).where(RESERVATION.c.id.in_(_IDS)).values(check_due_ms=bindparam("now_ms", type_=BigInteger))
)
_EXPOSED_ON: Final = select(ALLOCATION).where(
    ALLOCATION.c.node_id == _OF_NODE, ALLOCATION.c.bind_state.in_(HELD_BY_NODE)
)


@dataclass(frozen=True, slots=True)
class Heard:
    """What a report changed: the answer, and the reservations that somebody must look at now, soonest start first."""

    answer: ReportAnswer
    reservation_ids: tuple[str, ...] = ()
    is_news: bool = False  # something changed: whoever waits for changes should look
    old_generations: int = 0  # words on former placements, which changed nothing


@dataclass(slots=True)
class _Changes:
    facts: bool = False
    touched: set[str] = field(default_factory=set[str])
    old_generations: int = 0


def report(connection: Connection, at: Moment, node_id: str, sent: Report) -> Heard:
    """Take one report. An older one than the newest known changes nothing.

    The reservations it concerns are looked at in transactions of their own; should the process die before, the next
    pass finds them by their state.

    Args:
        connection: In a transaction.
        at: Now.
        node_id: Of the credential, whatever the report says.
        sent: Absolute state of the node.

    Raises:
        Problem: `CONFLICT` when it lists a GPU that another node reports; `INVALID_INPUT` for a revision beyond all
            counting. Nothing was stored.
    """
    of_node = {"node_id": node_id}
    pool_id = connection.execute(_POOL_OF, of_node).scalar_one()
    # The pool first, as everywhere: a report may hold atoms and mark bookings.
    pool_row = read.pool(connection, pool_id, lock=True)
    assert pool_row is not None, "a node's pool exists: the foreign key says so"
    row = connection.execute(_NODE_LOCKED, of_node).mappings().one()
    answer = ReportAnswer(accepted=True, now_ms=at.ms, heartbeat_ms=pool_row.policy.heartbeat_ms)
    if _is_stale(row, sent):
        return Heard(answer.model_copy(update={"accepted": False, "reason": "stale"}))
    changes = _Changes()
    columns: dict[str, Any] = {}
    if sent.applied_rev > row["rev"]:
        sent = _of_the_future(connection, at, row, sent, columns)
        changes.facts = True
    columns |= {
        "boot_id": sent.boot_id,
        "seq": sent.seq,
        "applied_rev": sent.applied_rev,
        "agent_version": sent.agent_version,
        "last_report_ms": at.ms,
    }
    rebooted = row["boot_id"] not in {None, sent.boot_id}
    if rebooted:
        columns["past_boots"] = dumps([*loads(row["past_boots"]), row["boot_id"]][-_PAST_BOOTS:]).decode()
    inventory: Inventory | None = None
    if sent.inventory is not None and sent.inventory_hash != row["inventory_hash"]:
        inventory = _measured(sent.inventory)
        keep_atoms(connection, node_id, inventory, slots_of(row["slots"]))
        columns |= {"inventory": encode(inventory).decode(), "inventory_hash": sent.inventory_hash}
        changes.facts = True
        _tell_inventory(connection, at, row, inventory)
    want_inventory = sent.inventory is None and sent.inventory_hash != row["inventory_hash"]
    holds_before, holds = _keep_holds(connection, at, row, sent.holds)
    if inventory is not None or row["silent"] or holds_before != holds or rebooted:
        signs = sign_columns(row, inventory, holds_before, holds, at.ms, pool_row.policy, rebooted=rebooted)
        columns |= signs
        changes.facts |= bool(signs)  # plans look at them
    changes.facts |= holds_before != holds
    _keep_statuses(connection, at, row, sent, changes, rebooted=rebooted)
    if row["silent"]:
        columns["silent"] = False
        commit.record_node(connection, at, node_id, pool_id, Fact("node.reachable", {}))
        changes.facts = True
    connection.execute(update(NODE).where(NODE.c.id == node_id).values(**columns))
    if changes.facts:
        commit.pool_changed(connection, pool_id, [node_id])
        changes.touched |= look_again(connection, at, [node_id])
    return Heard(
        answer.model_copy(update={"want_inventory": want_inventory}),
        read.soonest_first(connection, changes.touched),
        is_news=changes.facts or bool(changes.touched),
        old_generations=changes.old_generations,
    )


def _of_the_future(
    connection: Connection, at: Moment, row: RowMapping, sent: Report, columns: dict[str, Any]
) -> Report:
    """Take a node that has obeyed a revision which this database never gave: it was restored from an older copy.

    The node would refuse every lower revision, so the next one is higher; what it applied was another's word, and
    confirms nothing that stands here. Source: facts on reliability, F09.
    """
    if sent.applied_rev > _REV_MAX:
        raise Problem(Code.INVALID_INPUT, "appliedRev: no coordinator counts that far")
    columns["rev"] = sent.applied_rev + 1
    fact = Fact("node.rev_ahead", {"rev": row["rev"], "appliedRev": sent.applied_rev})
    commit.record_node(connection, at, row["id"], row["pool_id"], fact)
    return sent.model_copy(update={"applied_rev": 0})


def look_again(connection: Connection, at: Moment, node_ids: Iterable[str]) -> set[str]:
    """Make every booking on these nodes due for a check now, and return their reservations."""
    booked = connection.execute(_BOOKED_ON, {"ids": list(node_ids)}).scalars().all()
    if not booked:
        return set()
    # Looked up by id and sorted out here: asked for by state, every reservation that stands would be read.
    rows = connection.execute(_STATES, {"ids": list(booked)})
    concerned = [row.id for row in rows if row.state in {State.PLACED, State.ACTIVE}]
    if concerned:
        connection.execute(_LOOKED_AT_AGAIN, {"ids": concerned, "now_ms": at.ms})
    return set(concerned)


def _is_stale(row: RowMapping, sent: Report) -> bool:
    if sent.boot_id in loads(row["past_boots"]):
        return True
    return bool(sent.boot_id == row["boot_id"] and sent.seq <= row["seq"])


def _measured(inventory: Inventory) -> Inventory:
    labels = {key: value for key, value in inventory.labels.items() if key.startswith(_MEASURED)}
    return inventory.model_copy(update={"labels": labels})


def _tell_inventory(connection: Connection, at: Moment, row: RowMapping, inventory: Inventory) -> None:
    before = Inventory.model_validate_json(row["inventory"]) if row["inventory"] else None
    data: dict[str, object] = {
        "gpus": sum(gpu.seen for gpu in inventory.gpus),
        "lost": [gpu.uuid for gpu in inventory.gpus if not gpu.seen],
        "labels": inventory.labels,
        "fabricReason": inventory.fabric_reason,
    }
    former = [] if before is None else before.findings
    known = {(finding.cause, finding.device, finding.code) for finding in former}
    fresh = [finding for finding in inventory.findings if (finding.cause, finding.device, finding.code) not in known]
    if fresh:
        data["findings"] = [f"{finding.cause}: {finding.message}" for finding in fresh]
    if before is not None:
        data["former"] = {"labels": before.labels, "fabricReason": before.fabric_reason}
    commit.record_node(connection, at, row["id"], row["pool_id"], Fact("node.inventory_changed", data))


def _keep_holds(
    connection: Connection, at: Moment, row: RowMapping, holds: list[Hold]
) -> tuple[set[HoldKey], set[HoldKey]]:
    """Store a node's holds; return those before the report, and those after."""
    known = connection.execute(_HOLDS_OF, {"node_id": row["id"]}).mappings().all()
    before = {(hold["device"], hold["cause"], hold["code"]) for hold in known}
    since = {(hold["device"], hold["cause"], hold["code"]): hold["since_ms"] for hold in known}
    after = {(hold.device or "", hold.cause, hold.code or 0): hold for hold in holds}
    for device, cause, code in sorted(before - after.keys()):
        connection.execute(delete(HOLD).where(*_hold_key(row["id"], (device, cause, code))))
        data = {"device": device or None, "cause": cause, "code": code or None}
        commit.record_node(connection, at, row["id"], row["pool_id"], Fact("node.hold_cleared", data))
    for key in sorted(key for key in after.keys() & before if after[key].since_ms != since[key]):
        # Raised again since: an operator's word on the former one does not end it.
        again = update(HOLD).where(*_hold_key(row["id"], key))
        connection.execute(again.values(since_ms=after[key].since_ms, clear_asked_ms=None))
    if fresh := sorted(after.keys() - before):
        _add_holds(connection, at, row, [(key, after[key]) for key in fresh])
    return before, set(after)


def _add_holds(connection: Connection, at: Moment, row: RowMapping, fresh: list[tuple[HoldKey, Hold]]) -> None:
    rows = [
        {
            "node_id": row["id"],
            "device": device,
            "cause": cause,
            "code": code,
            "since_ms": hold.since_ms,
            "clears_by": hold.clears_by,
            "message": hold.message,
        }
        for (device, cause, code), hold in fresh
    ]
    connection.execute(insert(HOLD), rows)
    facts = [
        Fact(
            "node.hold_added",
            {"device": hold.device, "cause": hold.cause, "code": hold.code, "clearsBy": hold.clears_by},
        )
        for _, hold in fresh
    ]
    fault = {"fault_ms": at.ms} if any(hold.cause not in NO_DATA for _, hold in fresh) else {}
    commit.record_node_all(connection, at, row["id"], row["pool_id"], facts, **fault)


def _hold_key(node_id: str, key: HoldKey) -> tuple[ColumnElement[bool], ...]:
    device, cause, code = key
    return (HOLD.c.node_id == node_id, HOLD.c.device == device, HOLD.c.cause == cause, HOLD.c.code == code)


def _keep_statuses(
    connection: Connection, at: Moment, row: RowMapping, sent: Report, changes: _Changes, *, rebooted: bool
) -> None:
    statuses = {status.allocation_id: status for status in sent.assignments}
    over: list[str] = []
    for allocation in connection.execute(_EXPOSED_ON, {"node_id": row["id"]}).mappings().all():
        status = statuses.get(allocation["id"])
        if status is not None and status.generation != allocation["generation"]:
            status = None  # of another placement: it confirms nothing
            changes.old_generations += 1
        columns = _heard_of(allocation, status, sent, row["rev"], rebooted=rebooted, now_ms=at.ms)
        if columns:
            heard = update(ALLOCATION).where(ALLOCATION.c.id == allocation["id"])
            connection.execute(heard.values(**columns))
            changes.touched.add(allocation["reservation_id"])
            if columns.get("bind_state") in metering.OVER:
                over.append(allocation["id"])
            if allocation["bind_state"] != BindState.UNBINDING and columns.get("bind_state") == BindState.LOST:
                commit.raise_revs(connection, [row["id"]])  # the desired state no longer has it
    metering.close(connection, at, over)
    changes.facts |= bool(over)


def _heard_of(
    allocation: RowMapping,
    status: AssignmentStatus | None,
    sent: Report,
    rev: int,
    *,
    rebooted: bool,
    now_ms: int,
) -> dict[str, Any]:
    """Return what a report says of one allocation that the node had been told of, as changed columns."""
    guard = (
        {} if status is None or status.guard_armed == allocation["guard_armed"] else {"guard_armed": status.guard_armed}
    )
    match BindState(allocation["bind_state"]):
        case BindState.BINDING if status is not None and status.state == "bound":
            bound = {"bind_state": BindState.BOUND, "bound_ms": now_ms, "bound_boot": sent.boot_id, "bind_reason": None}
            return guard | bound
        case BindState.BINDING if status is not None and status.state == "lostByReboot":
            return {"bind_state": BindState.LOST, "bind_reason": "lostByReboot"}
        case BindState.BINDING if status is not None and (status.reason != allocation["bind_reason"]):
            return guard | {"bind_reason": status.reason}
        case BindState.BOUND:
            if rebooted or (status is not None and status.state == "lostByReboot"):
                return {"bind_state": BindState.LOST, "bind_reason": "lostByReboot"}
            if sent.applied_rev >= rev and (status is None or status.state == "failed"):
                if allocation["grant_until_ms"] is not None and now_ms >= allocation["grant_until_ms"] - _EARLY_MS:
                    return {"bind_state": BindState.RELEASED}  # by itself, at the end that it was told
                reason = status.reason if status is not None else "no longer bound"
                return {"bind_state": BindState.LOST, "bind_reason": reason}
        case BindState.UNBINDING:
            is_past = allocation["dropped_rev"] is not None and sent.applied_rev >= allocation["dropped_rev"]
            if is_past and (status is None or status.state not in EXPOSED):
                return {"bind_state": BindState.RELEASED}
        case _:
            pass
    return guard
