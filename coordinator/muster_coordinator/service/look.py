"""Reads only: reservations, nodes, pools and previews, as the API shows them."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import Connection, RowMapping, String, bindparam, or_, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState, State
from muster_coordinator.core.snapshot import NodeView as Planned
from muster_coordinator.service import draft as drafts
from muster_coordinator.service.access.guard import Guard
from muster_coordinator.service.accounts.charge import allowances
from muster_coordinator.service.admit import check_new, wanted_pool
from muster_coordinator.service.bodies import (
    Condition,
    MaintenanceMark,
    MemberView,
    NodeView,
    OverdueRelease,
    PoolView,
    PreviewView,
    ReservationRequest,
    ReservationView,
)
from muster_coordinator.service.capacity.preview import previewed, with_quota
from muster_coordinator.service.capacity.rollup import offered, rolled_up, usable_now
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.maintenance.marks import marks
from muster_coordinator.service.nodes.slots import written_slots
from muster_coordinator.service.repairs.risks import risk_texts
from muster_coordinator.service.waiting import conditions
from muster_coordinator.store import read
from muster_coordinator.store.documents import as_agreed
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import ALLOCATION, ATOM, BOOKING, HOLD, NODE, RESERVATION
from muster_shared.codec import loads
from muster_shared.devices import atom_numbers
from muster_shared.errors import Code, Problem
from muster_shared.wire import Hold, Inventory

PAGE_MAX: Final = 500  # items of one page: a reservation of 16 nodes is about 4 KiB, so a page stays below 2 MiB


def reservation(connection: Connection, reservation_id: str) -> ReservationView:
    """Show one reservation.

    Raises:
        Problem: `NOT_FOUND`.
    """
    view = reservations_of(connection, [reservation_id]).get(reservation_id)
    if view is None:
        raise Problem(Code.NOT_FOUND, f"there is no reservation {reservation_id!r}; `muster list` shows the ids")
    return view


def reservations_of(connection: Connection, reservation_ids: Collection[str]) -> dict[str, ReservationView]:
    """Show these reservations, by id; what does not exist is left out."""
    rows = connection.execute(_THESE, {"reservation_ids": list(reservation_ids)}).mappings().all()
    return {view.id: view for view in _reservations(connection, rows)}


def reservations(
    connection: Connection,
    *,
    tenant_id: str | None = None,
    pool_id: str | None = None,
    states: Collection[str] = (),
    series_id: str | None = None,
    name: str | None = None,
    after: str | None = None,
    limit: int,
) -> list[ReservationView]:
    """List reservations in the order of their ids, which is the order in which they were made."""
    wanted = select(RESERVATION).order_by(RESERVATION.c.id).limit(limit)
    if tenant_id is not None:
        wanted = wanted.where(RESERVATION.c.tenant_id == tenant_id)
    if pool_id is not None:
        wanted = wanted.where(RESERVATION.c.pool_id == known_pool(connection, pool_id).id)
    if states:
        wanted = wanted.where(RESERVATION.c.state.in_(states))
    if series_id is not None:
        wanted = wanted.where(RESERVATION.c.series_id == series_id)
    if name is not None:
        wanted = wanted.where(RESERVATION.c.name == name)
    if after is not None:
        wanted = wanted.where(RESERVATION.c.id > after)
    return _reservations(connection, connection.execute(wanted).mappings().all())


def preview(
    connection: Connection, at: Moment, request: ReservationRequest, index: PoolIndex, guard: Guard | None = None
) -> PreviewView:
    """Answer what placing this request now would do, by the planner itself. Nothing is held.

    Raises:
        Problem: As `reserve` would.
    """
    pool_row = wanted_pool(connection, request)
    draft = drafts.drafted(request, at.ms, pool_row.policy)
    wanted = draft.reservation(request, "", pool_row.id, at.ms)
    check_new(connection, guard, wanted, pool_row)
    snapshot = index.snapshot(connection, pool_row, at)
    allowance = allowances(connection, pool_row.id, [wanted.tenant_id])[wanted.tenant_id]
    return with_quota(previewed(snapshot, wanted, at, pool_row), wanted, allowance)


def nodes(
    connection: Connection, at: Moment, *, pool_id: str | None = None, after: str | None = None, limit: int
) -> list[NodeView]:
    """List nodes in the order of their names."""
    wanted = select(NODE).where(NODE.c.removed_ms.is_(None)).order_by(NODE.c.name).limit(limit)
    if pool_id is not None:
        wanted = wanted.where(NODE.c.pool_id == known_pool(connection, pool_id).id)
    if after is not None:
        wanted = wanted.where(NODE.c.name > after)
    return _nodes(connection, at, connection.execute(wanted).mappings().all())


def node(connection: Connection, at: Moment, name: str) -> NodeView:
    """Show one node, by id or name.

    Raises:
        Problem: `NOT_FOUND`.
    """
    named = or_(NODE.c.id == name, NODE.c.name == name), NODE.c.removed_ms.is_(None)
    rows = connection.execute(select(NODE).where(*named)).mappings().all()
    if not rows:
        raise Problem(Code.NOT_FOUND, f"there is no node {name!r}; `muster nodes` lists them")
    return _nodes(connection, at, rows)[0]


def pools(connection: Connection, at: Moment) -> list[PoolView]:
    """Show every pool with its rollup."""
    return [_pool(connection, at, row) for row in read.pools(connection)]


def pool(connection: Connection, at: Moment, name: str) -> PoolView:
    """Show one pool, by id or name.

    Raises:
        Problem: `NOT_FOUND`.
    """
    return _pool(connection, at, known_pool(connection, name))


def known_pool(connection: Connection, name: str) -> PoolRow:
    """Return a pool by id or name.

    Raises:
        Problem: `NOT_FOUND`.
    """
    row = read.pool(connection, name)
    if row is None:
        raise drafts.pool_missing(name)
    return row


def _pool(connection: Connection, at: Moment, row: PoolRow) -> PoolView:
    return rolled_up(connection, at, row, read.snapshot(connection, row, at.ms))


def _reservations(connection: Connection, rows: Collection[RowMapping]) -> list[ReservationView]:
    members = _members(connection, [row["id"] for row in rows])
    told = conditions(connection, {row["pool_id"] for row in rows if row["wait_key"]})
    return [_reservation(row, members[row["id"]], told) for row in rows]


def condition_told(row: RowMapping, told: Mapping[tuple[str, str], str]) -> Condition | None:
    """Return why a reservation waits: what it was told alone, else what its line was told."""
    text = row["condition"] or told.get((row["pool_id"], row["wait_key"] or ""))
    if not text:
        return None
    condition = Condition.model_validate_json(text)
    return condition.model_copy(update={"reason": "BookingRepairFailed"}) if row["repairing"] else condition


def _reservation(row: RowMapping, members: list[MemberView], told: Mapping[tuple[str, str], str]) -> ReservationView:
    asked = ReservationRequest.model_validate_json(row["request"])
    agreed = dict(as_agreed(row["agreed"]))
    bound = sorted(one.allocation_id for one in members if one.allocation_id and one.bind_state == BindState.BOUND)
    return ReservationView(
        id=row["id"],
        tenant_id=row["tenant_id"],
        pool_id=row["pool_id"],
        name=row["name"],
        state=State(row["state"]).value,
        reason=row["end_reason"],
        condition=condition_told(row, told),
        at_risk=risk_texts(row),
        start=row["start_ms"],
        end=row["start_ms"] + row["duration_ms"],
        duration=row["duration_ms"],
        latest_start=row["latest_start_ms"],
        devices=asked.devices,
        gang=asked.gang.model_copy(update={"size": row["size"]}),  # a gang may have been shrunk since
        topology=agreed,
        topology_value=next(iter(agreed.values()), None),
        node_selector=asked.node_selector,
        on_member_loss=row["on_member_loss"],
        labels=asked.labels,
        generation=row["generation"],
        version=row["version"],
        seed=row["seed"],
        protected_until=row["protected_until_ms"],
        created=row["created_ms"],
        activated=row["activated_ms"],
        ended=row["ended_ms"],
        members=members,
        binding=bound[0] if bound else None,
        series_id=row["series_id"],
        occurrence=row["occurrence_ms"],
        idempotency_key=row["idempotency_key"],
    )


_THESE: Final = select(RESERVATION).where(
    RESERVATION.c.id.in_(bindparam("reservation_ids", type_=String, expanding=True))
)
_MEMBERS: Final = (
    select(
        ALLOCATION,
        NODE.c.name,
        BOOKING.c.word,
        BOOKING.c.mask,
        (RESERVATION.c.start_ms + RESERVATION.c.duration_ms).label("ends_ms"),
    )
    .join(NODE, NODE.c.id == ALLOCATION.c.node_id)
    .join(RESERVATION, RESERVATION.c.id == ALLOCATION.c.reservation_id)
    .join(BOOKING, BOOKING.c.allocation_id == ALLOCATION.c.id)
    .where(
        ALLOCATION.c.reservation_id.in_(bindparam("reservation_ids", type_=String, expanding=True)), ALLOCATION.c.live
    )
    .order_by(NODE.c.name)
)


def _members(connection: Connection, reservation_ids: Collection[str]) -> defaultdict[str, list[MemberView]]:
    """Return live members in the order of their nodes' names, which is that of the gang's ranks."""
    rows: dict[str, RowMapping] = {}
    masks: defaultdict[str, int] = defaultdict(int)
    for row in connection.execute(_MEMBERS, {"reservation_ids": list(reservation_ids)}).mappings():
        rows[row["id"]] = row  # one for each mask word of its booking
        masks[row["id"]] |= read.mask_of(row["word"], row["mask"])
    if not rows:
        return defaultdict(list)
    devices = _devices(connection, {row["node_id"] for row in rows.values()})
    members: defaultdict[str, list[MemberView]] = defaultdict(list)
    for row in rows.values():
        known = devices[row["node_id"]]
        members[row["reservation_id"]].append(
            MemberView(
                allocation_id=row["id"],
                node_id=row["node_id"],
                node_name=row["name"],
                # Two shares of a GPU are one device.
                devices=list(dict.fromkeys(known[number] for number in atom_numbers(masks[row["id"]]))),
                topology=dict(as_agreed(row["agreed"])),
                generation=row["generation"],
                bind_state=row["bind_state"],
                bind_reason=row["bind_reason"],
                granted_until=_older_grant(row),
                overdue=row["overdue"],
            )
        )
    return members


def _older_grant(row: RowMapping) -> int | None:
    """Return how long a node keeps what it has bound, where it knows of no later end."""
    is_held = row["bind_state"] in {BindState.BINDING, BindState.BOUND} and row["grant_until_ms"] is not None
    return row["grant_until_ms"] if is_held and row["grant_until_ms"] < row["ends_ms"] else None


_DEVICES: Final = select(ATOM.c.node_id, ATOM.c.number, ATOM.c.device).where(
    ATOM.c.node_id.in_(bindparam("node_ids", type_=String, expanding=True))
)


def _devices(connection: Connection, node_ids: Collection[str]) -> defaultdict[str, dict[int, str]]:
    devices: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for node_id, number, device in connection.execute(_DEVICES, {"node_ids": list(node_ids)}):
        devices[node_id][number] = device
    return devices


def _nodes(connection: Connection, at: Moment, rows: Collection[RowMapping]) -> list[NodeView]:
    node_ids = {row["id"] for row in rows}
    holds: defaultdict[str, list[RowMapping]] = defaultdict(list)
    for hold in connection.execute(select(HOLD).where(HOLD.c.node_id.in_(node_ids))).mappings():
        holds[hold["node_id"]].append(hold)
    overdue: defaultdict[str, list[OverdueRelease]] = defaultdict(list)
    for late in connection.execute(_LATE_RELEASES, {"node_ids": list(node_ids)}):
        overdue[late.node_id].append(
            OverdueRelease(allocation_id=late.id, reservation_id=late.reservation_id, since=late.dropped_ms)
        )
    upkeep = marks(connection, node_ids)
    planned: dict[str, Planned] = {}
    for pool_id in sorted({row["pool_id"] for row in rows}):
        planned.update(read.snapshot(connection, known_pool(connection, pool_id), at.ms, node_ids).views)
    return [
        _node(row, planned[row["id"]], holds[row["id"]], overdue[row["id"]], upkeep.get(row["id"]), at) for row in rows
    ]


_LATE_RELEASES: Final = (
    select(ALLOCATION.c.id, ALLOCATION.c.reservation_id, ALLOCATION.c.node_id, ALLOCATION.c.dropped_ms)
    .where(ALLOCATION.c.node_id.in_(bindparam("node_ids", type_=String, expanding=True)))
    .where(ALLOCATION.c.bind_state == BindState.UNBINDING, ALLOCATION.c.overdue)
    .order_by(ALLOCATION.c.id)
)


def _node(
    row: RowMapping,
    view: Planned,
    holds: list[RowMapping],
    overdue: list[OverdueRelease],
    upkeep: MaintenanceMark | None,
    at: Moment,
) -> NodeView:
    inventory = Inventory.model_validate_json(row["inventory"]) if row["inventory"] else None
    return NodeView(
        id=row["id"],
        name=row["name"],
        pool_id=row["pool_id"],
        labels=dict(view.node.labels),
        operator_labels=loads(row["operator_labels"]),
        fabric_reason=inventory.fabric_reason if inventory else None,
        reachable=view.node.reachable,
        intent=view.node.intent,
        drained=row["drained_ms"],
        flapping=bool(view.node.flapping_until_ms),
        overdue=overdue,
        leased=view.node.leased,
        last_report=row["last_report_ms"],
        agent_version=row["agent_version"],
        driver_version=inventory.driver_version if inventory else None,
        monitoring=inventory.monitoring if inventory else None,
        gpus=inventory.gpus if inventory else [],
        holds=[
            Hold(
                device=hold["device"] or None,
                cause=hold["cause"],
                code=hold["code"] or None,
                since_ms=hold["since_ms"],
                clears_by=hold["clears_by"],
                message=hold["message"],
            )
            for hold in sorted(holds, key=lambda one: (one["device"], one["cause"], one["code"]))
        ],
        findings=inventory.findings if inventory else [],
        gpus_total=len(view.layout.gpus),
        gpus_free=usable_now(view, at).bit_count(),
        offers=offered(view, at, free=False),
        free=offered(view, at, free=True),
        slots=written_slots(row["slots"]),
        maintenance=upkeep,
        rev=row["rev"],
        applied_rev=row["applied_rev"],
    )
