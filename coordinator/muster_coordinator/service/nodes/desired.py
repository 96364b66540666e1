"""What a node shall have bound. Every grant is stored before the reply leaves."""

from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState, Policy
from muster_coordinator.service.nodes.join import cluster_id
from muster_coordinator.store import read
from muster_coordinator.store.documents import as_agreed
from muster_coordinator.store.tables import ALLOCATION, ATOM, HOLD, NODE, RESERVATION
from muster_shared.devices import atom_numbers
from muster_shared.wire import FABRIC_DOMAIN, Assignment, Clearance, DesiredState


@dataclass(frozen=True, slots=True)
class _Granted:
    assignment: Assignment
    until_ms: int


def desired_rev(connection: Connection, node_id: str) -> int:
    """Return the revision of a node's desired state."""
    return int(connection.execute(select(NODE.c.rev).where(NODE.c.id == node_id)).scalar_one())


def desired(connection: Connection, at: Moment, node_id: str) -> DesiredState:
    """Return all that a node shall have bound, and store how long it may keep it.

    Args:
        connection: In a transaction that is committed before the reply leaves.
        at: Now.
        node_id: Of the credential.
    """
    node = connection.execute(select(NODE).where(NODE.c.id == node_id).with_for_update()).mappings().one()
    pool_row = read.pool(connection, node["pool_id"])
    assert pool_row is not None, "a node's pool exists: the foreign key says so"
    told = (
        select(
            ALLOCATION,
            RESERVATION.c.tenant_id,
            RESERVATION.c.start_ms,
            RESERVATION.c.duration_ms,
            RESERVATION.c.protected_until_ms,
        )
        .join(RESERVATION, RESERVATION.c.id == ALLOCATION.c.reservation_id)
        .where(
            ALLOCATION.c.node_id == node_id,
            ALLOCATION.c.live,
            ALLOCATION.c.bind_state.in_((BindState.BINDING, BindState.BOUND)),
        )
        .order_by(ALLOCATION.c.id)
    )
    rows = connection.execute(told).mappings().all()
    masks = read.masks(connection, [row["id"] for row in rows])
    atoms = connection.execute(select(ATOM.c.number, ATOM.c.device, ATOM.c.kind).where(ATOM.c.node_id == node_id)).all()
    devices = {atom.number: atom.device for atom in atoms}
    slots = {atom.number for atom in atoms if atom.kind == "slot"}
    assignments: list[Assignment] = []
    for row in rows:
        numbers = atom_numbers(masks[row["id"]])
        uuids = list(dict.fromkeys(devices[number] for number in numbers))  # two shares of a GPU are one device
        shared = list(dict.fromkeys(devices[number] for number in numbers if number in slots))
        granted = _granted(row, uuids, shared, at, pool_row.policy)
        assignments.append(granted.assignment)
        if row["grant_until_ms"] != granted.until_ms:
            stored = update(ALLOCATION).where(ALLOCATION.c.id == row["id"])
            connection.execute(stored.values(grant_until_ms=granted.until_ms))
    return DesiredState(
        cluster_id=cluster_id(connection),
        node_id=node_id,
        epoch=pool_row.epoch,
        rev=node["rev"],
        now_ms=at.ms,
        assignments=assignments,
        cleared=_cleared(connection, node_id),
    )


def _cleared(connection: Connection, node_id: str) -> list[Clearance]:
    asked = select(HOLD).where(HOLD.c.node_id == node_id, HOLD.c.clear_asked_ms.is_not(None))
    return [
        Clearance(device=row["device"] or None, cause=row["cause"], code=row["code"] or None, since_ms=row["since_ms"])
        for row in connection.execute(asked.order_by(HOLD.c.device, HOLD.c.cause, HOLD.c.code)).mappings()
    ]


def _granted(row: RowMapping, uuids: list[str], shared: list[str], at: Moment, policy: Policy) -> _Granted:
    end_ms = row["start_ms"] + row["duration_ms"]
    # Before it is active, a regular reservation will be protected for its whole window: nothing may preempt it.
    protected_ms = row["protected_until_ms"] if row["protected_until_ms"] is not None else end_ms
    until_ms = max(row["grant_until_ms"] or 0, min(end_ms, max(protected_ms, at.ms + policy.grant_ms)))
    agreed = dict(as_agreed(row["agreed"]))
    # What the agent can look at is its fabric; people's labels mean nothing to it.
    key = FABRIC_DOMAIN if FABRIC_DOMAIN in agreed else next(iter(agreed), None)
    assignment = Assignment(
        allocation_id=row["id"],
        reservation_id=row["reservation_id"],
        generation=row["generation"],
        tenant_id=row["tenant_id"],
        devices=uuids,
        shared=shared,
        starts_in_ms=row["start_ms"] - at.ms,
        ends_in_ms=end_ms - at.ms,
        grant_for_ms=until_ms - at.ms,
        topology_key=key,
        topology_value=None if key is None else agreed[key],
        imex_channel=row["imex_channel"],
        kill_grace_ms=policy.kill_grace_ms,
    )
    return _Granted(assignment, until_ms)
