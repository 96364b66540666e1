"""The occurrences of a series become reservations ahead of their time, one at a time, each in its own transaction.

What is to be made follows from what is stored and the clock: whoever dies in between, and whoever comes second, finds
the occurrence by its key and goes on.
"""

from sqlalchemy import Connection, or_, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import EndReason, Policy
from muster_coordinator.service.admit import created
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.series.occurrence import ACTIVE, ENDED, Series, known_series, record_series
from muster_coordinator.store import read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import SERIES
from muster_shared.errors import Problem


def ahead_ms(policy: Policy) -> int:
    """Return how far ahead occurrences are made, milliseconds: never further than anybody may reserve."""
    return min(policy.series_ahead_ms, policy.look_ahead_ms)


def due_series(connection: Connection, at: Moment, pool_row: PoolRow) -> list[str]:
    """Return the series of a pool that have an occurrence to make now, or are over."""
    is_over = SERIES.c.until_ms <= at.ms
    has_more = or_(SERIES.c.until_ms.is_(None), SERIES.c.made_until_ms < SERIES.c.until_ms)
    is_near = SERIES.c.made_until_ms <= at.ms + ahead_ms(pool_row.policy)
    mine = select(SERIES.c.id).where(SERIES.c.pool_id == pool_row.id, SERIES.c.state == ACTIVE)
    return list(connection.execute(mine.where(or_(is_over, has_more & is_near)).order_by(SERIES.c.id)).scalars())


def make_next(connection: Connection, at: Moment, series_id: str, index: PoolIndex) -> bool:
    """Make the next occurrence of a series, or end it; return whether anything was done. A flow, like `reserve`.

    Args:
        connection: Outside any transaction.
        at: Now.
        series_id: Of any state.
        index: The pools in memory.
    """
    with connection.begin():
        series = known_series(connection, series_id)
        pool_row = read.known_pool(connection, series.pool_id)
        if series.state != ACTIVE:
            return False
        if series.until_ms is not None and series.until_ms <= at.ms:
            return _end(connection, at, series)
        coming = series.coming(series.made_until_ms, 2)
        if not coming or coming[0] > at.ms + ahead_ms(pool_row.policy):
            return False
        snapshot = index.snapshot(connection, pool_row, at)
    occurrence_ms = coming[0]
    is_missed = False
    if occurrence_ms not in series.skipped:
        wanted = series.wanted(occurrence_ms, at.new_id("rsv"), at.ms)
        is_missed = wanted.reservation.window_from(at.ms) is None
        if not is_missed:
            try:
                created(connection, at, pool_row, wanted, snapshot, index)
            except Problem:
                return False  # its owner was faster; whatever that has changed is looked at anew
    return _go_on(connection, at, series, coming, is_missed=is_missed)


def _go_on(connection: Connection, at: Moment, series: Series, coming: list[int], *, is_missed: bool) -> bool:
    """Note that the first of `coming` is done, unless the series is asked for an earlier one by now.

    A following one that the rule does not have ends the series once this one has begun.
    """
    done_ms, *following = coming
    after_ms = following[0] if following else done_ms + 1
    with connection.begin():
        read.known_pool(connection, series.pool_id, lock=True)
        current = known_series(connection, series.id)
        if current.made_until_ms != series.made_until_ms:
            return True
        until_ms = current.until_ms if following or current.until_ms is not None else after_ms
        mine = update(SERIES).where(SERIES.c.id == series.id)
        connection.execute(mine.values(made_until_ms=after_ms, until_ms=until_ms))
        if is_missed:
            record_series(connection, at, series, Fact("series.missed", {"occurrence": done_ms}))
    return True


def _end(connection: Connection, at: Moment, series: Series) -> bool:
    read.known_pool(connection, series.pool_id, lock=True)
    if known_series(connection, series.id).state == ACTIVE:
        reason = EndReason.COMPLETED
        fact = Fact("series.ended", {"reason": reason})
        record_series(connection, at, series, fact, state=ENDED, end_reason=reason, ended_ms=at.ms)
    return True
