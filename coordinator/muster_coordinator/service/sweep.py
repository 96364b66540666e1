"""The background pass of one pool: who leads, who fell silent, what is due, what is pending, what is published.

Every part looks at stored state and the clock, so it does not matter how often or how late it runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, RowMapping, insert, select, union_all, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState, State
from muster_coordinator.core.repair.brake import POOL, is_bad
from muster_coordinator.service.accounts import metering
from muster_coordinator.service.advance import advance_batch
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.maintenance import declare as maintenance
from muster_coordinator.service.nodes.report import look_again
from muster_coordinator.service.repairs import drain, orphans, overdue, storm
from muster_coordinator.service.repairs.signs import flips_after
from muster_coordinator.service.series.ahead import due_series
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import ALLOCATION, LEASE, NODE, RESERVATION

LEASE_MS: Final = 15_000
"""How long a coordinator that stopped renewing keeps others waiting. Source: facts on reliability, section 6."""

_RENEW_MS: Final = LEASE_MS // 3  # a write, and its fsync, only when it is worth one
_GUARD_MARGIN_MS: Final = 30_000  # after `grantUntil`: design, section 6


class FencedError(Exception):
    """Another coordinator runs this pool now: whatever was about to be written is not."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """The right to run one pool's background work, fenced by its epoch."""

    pool_id: str
    holder: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Agenda:
    """What one pool needs now, found by reading alone: an idle pool costs no write."""

    pool_row: PoolRow
    leadership: Leadership | None  # None where the lease must be taken or renewed first
    is_silence_due: bool  # a node fell silent, or a guard has ended what a silent one held
    maintenance: tuple[str, ...]  # windows that need something
    is_storm_due: bool  # much fell, or came back, since it was last told
    is_tending_due: bool  # a node was emptied, or a release is late
    due: tuple[str, ...]  # reservations that ask for a step
    series: tuple[str, ...]  # that have an occurrence to make, or are over


def agendas(connection: Connection, at: Moment, holder: str, index: PoolIndex) -> list[Agenda]:
    """Return what every pool needs now. Others may change it before it is done: each step looks again."""
    return [_agenda(connection, at, pool_row, holder, index) for pool_row in read.pools(connection)]


def _agenda(connection: Connection, at: Moment, pool_row: PoolRow, holder: str, index: PoolIndex) -> Agenda:
    found = storm.seen(index.snapshot(connection, pool_row, at), at.ms)
    lease = connection.execute(select(LEASE).where(LEASE.c.pool_id == pool_row.id)).mappings().first()
    is_led = lease is not None and lease["holder"] == holder and lease["until_ms"] - at.ms >= LEASE_MS - _RENEW_MS
    return Agenda(
        pool_row,
        Leadership(pool_row.id, holder, pool_row.epoch) if is_led else None,
        bool((not found.is_dark and _fresh(connection, at, pool_row)) or _ended_by_guard(connection, at, pool_row)),
        # Before the reservations: whom a window that is seen here has made due is seen, too.
        tuple(maintenance.due(connection, at, pool_row.id)),
        storm.is_news(pool_row, found),
        bool(drain.emptied(connection, pool_row) or overdue.late_releases(connection, at, pool_row)),
        tuple(due(connection, at, pool_row.id, checks=not found.is_dark)),
        tuple(due_series(connection, at, pool_row)),
    )


def lead(connection: Connection, at: Moment, pool_id: str, holder: str) -> Leadership | None:
    """Take or renew the lease of a pool; None while somebody else holds it.

    A new holder begins a new epoch; renewing keeps it.
    """
    read.pool(connection, pool_id, lock=True)
    row = connection.execute(select(LEASE).where(LEASE.c.pool_id == pool_id).with_for_update()).mappings().first()
    until_ms = at.ms + LEASE_MS
    if row is None:
        connection.execute(
            insert(LEASE).values(pool_id=pool_id, epoch=1, holder=holder, until_ms=until_ms, since_ms=at.ms)
        )
        return Leadership(pool_id, holder, 1)
    mine = update(LEASE).where(LEASE.c.pool_id == pool_id)
    if row["holder"] == holder:
        if until_ms - row["until_ms"] > _RENEW_MS:
            connection.execute(mine.values(until_ms=until_ms))
        return Leadership(pool_id, holder, row["epoch"])
    if row["until_ms"] > at.ms:
        return None
    epoch = row["epoch"] + 1
    connection.execute(mine.values(epoch=epoch, holder=holder, until_ms=until_ms, since_ms=at.ms))
    return Leadership(pool_id, holder, epoch)


def hold_epoch(connection: Connection, leadership: Leadership) -> None:
    """Check the epoch inside the transaction that is about to use it.

    Raises:
        FencedError: A newer epoch has begun. A paused process cannot know that it lost its lease.
    """
    wanted = select(LEASE.c.epoch).where(LEASE.c.pool_id == leadership.pool_id).with_for_update(read=True)
    if connection.execute(wanted).scalar() != leadership.epoch:
        raise FencedError(f"epoch {leadership.epoch} of {leadership.pool_id} is over")


def judge(connection: Connection, at: Moment, leadership: Leadership, index: PoolIndex) -> tuple[str, ...]:
    """Announce what the storm brake does from now on.

    Returns:
        Reservations that it kept where they are, and that somebody must look at now.
    """
    pool_row = _pool(connection, leadership)
    hold_epoch(connection, leadership)
    pool = index.snapshot(connection, pool_row, at)
    found = storm.seen(pool, at.ms)
    eased = storm.announce(connection, at, pool_row, found)
    if not eased or found.is_dark:
        return ()
    nodes = [view.node for view in pool.ordered if POOL in eased or view.node.home_domain in eased]
    touched = look_again(connection, at, [node.id for node in nodes if is_bad(node)])
    return read.soonest_first(connection, touched)


def tend(connection: Connection, at: Moment, leadership: Leadership) -> None:
    """Tell what only an operator ends, or waits for."""
    pool_row = _pool(connection, leadership)
    hold_epoch(connection, leadership)
    drain.tell_emptied(connection, at, pool_row)
    overdue.tell_late_releases(connection, at, pool_row)


def reconcile(connection: Connection, at: Moment, leadership: Leadership) -> bool:
    """Free what is left of nobody; return whether there was anything."""
    pool_row = _pool(connection, leadership)
    hold_epoch(connection, leadership)
    return orphans.free_orphans(connection, at, pool_row)


def listen(connection: Connection, at: Moment, leadership: Leadership, index: PoolIndex) -> tuple[str, ...]:
    """Announce nodes that fell silent, and free what armed guards have ended on them.

    In a dark pool none is announced: the silence may be the coordinator's own.

    Returns:
        Reservations that somebody must look at now.
    """
    pool_row = _pool(connection, leadership)
    hold_epoch(connection, leadership)
    touched: set[str] = set()
    found = storm.seen(index.snapshot(connection, pool_row, at), at.ms)
    fresh = [] if found.is_dark else _fresh(connection, at, pool_row)
    for row in fresh:
        fact = Fact("node.unreachable", {"lastReport": row["last_report_ms"]})
        flips = flips_after(row, at.ms)
        commit.record_node(connection, at, row["id"], pool_row.id, fact, silent=True, flips=flips)
    if fresh:
        commit.pool_changed(connection, pool_row.id, [row["id"] for row in fresh])
        touched |= look_again(connection, at, [row["id"] for row in fresh])
    ended = _ended_by_guard(connection, at, pool_row)
    for row in ended:
        freed = update(ALLOCATION).where(ALLOCATION.c.id == row["id"])
        connection.execute(freed.values(bind_state=BindState.FENCED, bind_reason="guard"))
        commit.pool_changed(connection, pool_row.id, [row["node_id"]])
        touched.add(row["reservation_id"])
    metering.close(connection, at, [row["id"] for row in ended])
    return read.soonest_first(connection, touched)


def _fresh(connection: Connection, at: Moment, pool_row: PoolRow) -> list[RowMapping]:
    """Return the nodes that have fallen silent and were not announced."""
    heard = select(NODE).where(NODE.c.pool_id == pool_row.id, ~NODE.c.silent, NODE.c.last_report_ms.is_not(None))
    late = heard.where(NODE.c.last_report_ms < at.ms - pool_row.policy.unreachable_after_ms).order_by(NODE.c.id)
    rows = connection.execute(late).mappings().all()
    return [row for row in rows if read.silent_since(row["last_report_ms"], pool_row, at.ms) is not None]


def _ended_by_guard(connection: Connection, at: Moment, pool_row: PoolRow) -> list[RowMapping]:
    """Return allocations that a silent node's armed guard has ended."""
    ended = (
        select(ALLOCATION, NODE.c.last_report_ms)
        .join(NODE, NODE.c.id == ALLOCATION.c.node_id)
        .where(NODE.c.pool_id == pool_row.id, ALLOCATION.c.bind_state == BindState.UNBINDING, ALLOCATION.c.guard_armed)
        .where(ALLOCATION.c.grant_until_ms + _GUARD_MARGIN_MS <= at.ms)
        .order_by(ALLOCATION.c.id)
    )
    rows = connection.execute(ended).mappings().all()
    return [row for row in rows if read.silent_since(row["last_report_ms"], pool_row, at.ms) is not None]


def advance_led(
    connection: Connection, at: Moment, leadership: Leadership, reservation_ids: Sequence[str], index: PoolIndex
) -> bool:
    """Carry a batch of reservations on, as the leader of their pool; return whether anything was due.

    Raises:
        FencedError: Somebody else leads by now; nothing was written.
    """
    _pool(connection, leadership)
    hold_epoch(connection, leadership)
    return advance_batch(connection, at, reservation_ids, index)


def settle_led(connection: Connection, at: Moment, leadership: Leadership, maintenance_id: str) -> tuple[str, ...]:
    """Do what a maintenance window needs, as the leader of its pool; return the reservations to look at now.

    Raises:
        FencedError: Somebody else leads by now; nothing was written.
    """
    _pool(connection, leadership)
    hold_epoch(connection, leadership)
    return maintenance.settle(connection, at, maintenance_id)


def due(connection: Connection, at: Moment, pool_id: str, *, checks: bool = True) -> list[str]:
    """Return the reservations whose state and the clock ask for a step: soonest start, largest gang, oldest first.

    Without `checks`, bookings that have not begun are left alone before their start.
    """
    checked = (State.PENDING, State.PLACED, State.ACTIVE) if checks else (State.PENDING, State.ACTIVE)
    window_over = RESERVATION.c.start_ms + RESERVATION.c.duration_ms <= at.ms
    # Each finds what it wants by an index of its own; with `or` between them, every reservation would be read.
    asking = (
        (RESERVATION.c.state == State.PLACED) & (RESERVATION.c.start_ms <= at.ms),
        RESERVATION.c.state.in_(checked) & (RESERVATION.c.check_due_ms <= at.ms),
        RESERVATION.c.state.in_((State.BINDING, State.ENDING)) & (RESERVATION.c.start_ms <= at.ms),
        (RESERVATION.c.state == State.ACTIVE) & (RESERVATION.c.start_ms <= at.ms) & window_over,
    )
    of_pool = select(RESERVATION.c.id).where(RESERVATION.c.pool_id == pool_id)
    wanted = (
        select(RESERVATION.c.id)
        .where(RESERVATION.c.id.in_(union_all(*(of_pool.where(one) for one in asking))))
        # At one instant: ends first, then repairs, then starts.
        .order_by(
            (RESERVATION.c.state.in_((State.ACTIVE, State.ENDING))).desc(),
            *read.SOONEST_FIRST,
        )
    )
    return list(connection.execute(wanted).scalars())


def _pool(connection: Connection, leadership: Leadership) -> PoolRow:
    pool_row = read.pool(connection, leadership.pool_id, lock=True)
    assert pool_row is not None, "a lease's pool exists: the foreign key says so"
    return pool_row
