"""The figures of every pool and receiver at one instant, by aggregates: what an alert can be made of."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState, Node, State
from muster_coordinator.core.placement.filters import group_value
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service.bodies import PoolView
from muster_coordinator.service.capacity.rollup import rolled_up
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.outward.tally import Tally
from muster_coordinator.store import read
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import (
    ALLOCATION,
    DELIVERY,
    EVENT,
    HOLD,
    LEASE,
    NODE,
    POOL,
    RESERVATION,
    WAIT,
    WEBHOOK,
)
from muster_shared.codec import loads
from muster_shared.ids import is_type_id
from muster_shared.wire import FABRIC_DOMAIN

SILENT_MAX: Final = 100  # silent nodes that are told by name: where there are more, the storm is what matters
_LIVE: Final = tuple(state for state in State if state is not State.ENDED)  # what has ended only grows: see the tally


@dataclass(frozen=True, slots=True)
class SilentNode:
    """A node that its pool has not heard from for too long."""

    name: str
    domain: str  # fabric.domain, empty where it has none
    intent: str  # of the operator, or `maintenance`


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """One pool."""

    view: PoolView  # whole GPUs
    is_led: bool  # some coordinator runs its background work
    states: Mapping[str, int]  # reservations by state
    pending: Mapping[str, int]  # those that wait, by reason
    at_risk: int
    events: Mapping[str, int]  # ever, by type
    nodes: Mapping[tuple[str, bool], int]  # by intent, and whether they are heard from
    nodes_held: int
    silent: tuple[SilentNode, ...]  # at most `SILENT_MAX`
    storm: Mapping[str, str]  # announced mode by topology domain, "" for the whole pool
    binding_late: int  # members that were told to bind longer ago than a bind may take
    releases_overdue: int  # members whose release their node has not confirmed in time


@dataclass(frozen=True, slots=True)
class ReceiverFigures:
    """One receiver of webhooks."""

    name: str
    enabled: bool
    waiting: int
    oldest_ms: int  # age of the oldest event that waits; 0 where none does
    dead: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything, at one instant."""

    pools: tuple[PoolFigures, ...]
    receivers: tuple[ReceiverFigures, ...]
    unpublished: int  # events that have no place in the stream yet


def figures(connection: Connection, at: Moment, index: PoolIndex, tally: Tally) -> Figures:
    """Read all figures.

    Cost: in rows that live, and in events since the last look. 2,000 nodes take some 50 ms.
    """
    counted = tally.counted(connection)
    states = _states(connection)
    pending = _pending(connection)
    leases = {row.pool_id: row.until_ms for row in connection.execute(select(LEASE.c.pool_id, LEASE.c.until_ms))}
    storms = {row.id: loads(row.storm) for row in connection.execute(select(POOL.c.id, POOL.c.storm))}
    held = _held(connection)
    pools: list[PoolFigures] = []
    for row in read.pools(connection):
        snapshot = index.snapshot(connection, row, at)
        late = _late(connection, row, at.ms)
        pools.append(
            PoolFigures(
                view=rolled_up(connection, at, row, snapshot),
                is_led=leases.get(row.id, 0) > at.ms,
                states={state: sum(states[row.id, state].values()) for state in _LIVE},
                pending=pending.get(row.id, {}),
                at_risk=sum(states[row.id, state][True] for state in _LIVE),
                events={kind: count for (pool_id, kind), count in counted.items() if pool_id == row.id},
                nodes=Counter((view.node.intent, view.node.reachable) for view in snapshot.views.values()),
                nodes_held=held.get(row.id, 0),
                silent=_silent(snapshot, at.ms),
                storm={key: "poolDark" if mode == "cutOff" else mode for key, mode in storms[row.id].items()},
                binding_late=late[BindState.BINDING],
                releases_overdue=late[BindState.UNBINDING],
            )
        )
    unpublished = connection.execute(select(func.count()).select_from(EVENT).where(EVENT.c.seq.is_(None))).scalar_one()
    return Figures(tuple(pools), _receivers(connection, at.ms), unpublished)


def _states(connection: Connection) -> Mapping[tuple[str, str], Counter[bool]]:
    """Count live reservations by pool and state, and in each by whether they are at risk."""
    is_at_risk = (RESERVATION.c.risks != "[]").label("is_at_risk")
    columns = (RESERVATION.c.pool_id, RESERVATION.c.state, is_at_risk)
    wanted = select(*columns, func.count()).where(RESERVATION.c.state.in_(_LIVE)).group_by(*columns)
    found: defaultdict[tuple[str, str], Counter[bool]] = defaultdict(Counter)
    for pool_id, state, at_risk, count in connection.execute(wanted):
        found[pool_id, state][bool(at_risk)] += count
    return found


def _pending(connection: Connection) -> dict[str, Counter[str]]:
    """Count pending reservations by pool and reason: their line's, unless one has a condition of its own."""
    columns = (RESERVATION.c.pool_id, RESERVATION.c.repairing, RESERVATION.c.condition, WAIT.c.condition)
    in_line = (WAIT.c.pool_id == RESERVATION.c.pool_id) & (WAIT.c.key == RESERVATION.c.wait_key)
    wanted = (
        select(*columns, func.count())
        .select_from(RESERVATION.outerjoin(WAIT, in_line))
        .where(RESERVATION.c.state == State.PENDING)
        .group_by(*columns)
    )
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pool_id, repairing, own, of_line, count in connection.execute(wanted):
        told = own or of_line
        reason = "BookingRepairFailed" if repairing else loads(told)["reason"] if told else "new"
        found[pool_id][reason] += count
    return found


def _late(connection: Connection, row: PoolRow, now_ms: int) -> Counter[str]:
    """Count members whose node has not confirmed, in the time of the pool's policy, what it was told."""
    unbound = ALLOCATION.c.live & (ALLOCATION.c.ordered_ms <= now_ms - row.policy.bind_timeout_ms)
    unreleased = ALLOCATION.c.overdue | (ALLOCATION.c.dropped_ms <= now_ms - row.policy.unbind_timeout_ms)
    here = ALLOCATION.c.node_id.in_(select(NODE.c.id).where(NODE.c.pool_id == row.id))
    wanted = (
        select(ALLOCATION.c.bind_state, func.count().label("members"))
        .where(here, ALLOCATION.c.bind_state.in_((BindState.BINDING, BindState.UNBINDING)))
        .where(
            ((ALLOCATION.c.bind_state == BindState.BINDING) & unbound)
            | ((ALLOCATION.c.bind_state == BindState.UNBINDING) & unreleased)
        )
        .group_by(ALLOCATION.c.bind_state)
    )
    return Counter({row.bind_state: row.members for row in connection.execute(wanted)})


def _silent(snapshot: Snapshot, now_ms: int) -> tuple[SilentNode, ...]:
    views = sorted((view for view in snapshot.views.values() if not view.node.reachable), key=lambda one: one.node.name)
    return tuple(
        SilentNode(view.node.name, group_value(view, FABRIC_DOMAIN) or "", _intent(view.node, now_ms))
        for view in views[:SILENT_MAX]
    )


def _intent(node: Node, now_ms: int) -> str:
    """Return what people mean a node to be; who is mending it may switch it off."""
    here = (one.reservation_id for one in node.booked if one.start_ms <= now_ms < one.end_ms)
    return "maintenance" if any(is_type_id("mnt", holder) for holder in here) else node.intent


def _held(connection: Connection) -> dict[str, int]:
    """Count the nodes of each pool that have any hold."""
    counted = func.count(HOLD.c.node_id.distinct()).label("nodes")
    wanted = select(NODE.c.pool_id, counted).join(NODE, NODE.c.id == HOLD.c.node_id).group_by(NODE.c.pool_id)
    return {row.pool_id: row.nodes for row in connection.execute(wanted)}


def _receivers(connection: Connection, now_ms: int) -> tuple[ReceiverFigures, ...]:
    columns = (DELIVERY.c.webhook_id, DELIVERY.c.state)
    wanted = (
        select(*columns, func.count(), func.min(EVENT.c.at_ms))
        .join(EVENT, EVENT.c.seq == DELIVERY.c.seq)
        .where(DELIVERY.c.state.in_(("waiting", "dead")))
        .group_by(*columns)
    )
    found = {(webhook_id, state): (count, at_ms) for webhook_id, state, count, at_ms in connection.execute(wanted)}
    rows = connection.execute(select(WEBHOOK.c.id, WEBHOOK.c.name, WEBHOOK.c.enabled).order_by(WEBHOOK.c.name)).all()
    figured: list[ReceiverFigures] = []
    for row in rows:
        waiting, since_ms = found.get((row.id, "waiting"), (0, now_ms))
        dead, _ = found.get((row.id, "dead"), (0, 0))
        figured.append(ReceiverFigures(row.name, row.enabled, waiting, max(now_ms - since_ms, 0), dead))
    return tuple(figured)
