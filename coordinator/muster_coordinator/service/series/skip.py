"""What an owner does with one occurrence of a series: skip it, take that back, or give it another window."""

from datetime import datetime, time

from sqlalchemy import Connection, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import EndReason, Policy, Reservation, State
from muster_coordinator.core.series import instant_of, zone_of
from muster_coordinator.service import draft as drafts
from muster_coordinator.service.access.caller import Resource
from muster_coordinator.service.access.guard import Guard
from muster_coordinator.service.access.weight import weight_of
from muster_coordinator.service.admit import insert_new
from muster_coordinator.service.changes.ends import end_at_once
from muster_coordinator.service.changes.move import move
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.series.bodies import OccurrenceChange
from muster_coordinator.service.series.days import day_of, is_day, length_within
from muster_coordinator.service.series.occurrence import (
    UNBEGUN,
    Occurrence,
    Series,
    known_series,
    locked_series,
    made_before,
    record_series,
)
from muster_coordinator.service.waiting import pending_columns
from muster_coordinator.service.when import instant
from muster_coordinator.store import read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import RESERVATION
from muster_shared.codec import dumps
from muster_shared.errors import Code, Problem, invalid
from muster_shared.time import Window, format_duration, format_instant


def skip(connection: Connection, at: Moment, series_id: str, named: str | int) -> None:
    """Leave one occurrence out; a booking of it is given up. Skipping it again changes nothing.

    Raises:
        Problem: `NOT_FOUND`; `INVALID_INPUT` for what is no occurrence; `CONFLICT` when it has begun, or passed,
            or the series has ended.
    """
    series, _ = locked_series(connection, series_id)
    instant_ms = _occurrence(series, named)
    if instant_ms in series.skipped:
        return
    reservation = _made(connection, series, instant_ms)
    if reservation is None:
        _refuse_passed(instant_ms, at.ms)
    elif reservation.state in UNBEGUN:
        end_at_once(connection, at, reservation, EndReason.CANCELLED)
    elif reservation.state is not State.ENDED or reservation.end_reason is not EndReason.CANCELLED:
        raise Problem(Code.CONFLICT, f"this occurrence has begun: cancel or release {reservation.id} instead")
    if reservation is not None:
        # What is skipped is no occurrence: it can be made again when its owner thinks better of it.
        freed = update(RESERVATION).where(RESERVATION.c.id == reservation.id)
        connection.execute(freed.values(occurrence_ms=None))
    told = {"occurrence": instant_ms, "reservationId": None if reservation is None else reservation.id}
    _record_skipped(connection, at, series, Fact("series.skipped", told), {*series.skipped, instant_ms})


def unskip(connection: Connection, at: Moment, series_id: str, named: str | int) -> None:
    """Take back that an occurrence was skipped: it is made again. What is not skipped is left as it is.

    Raises:
        Problem: `NOT_FOUND`; `INVALID_INPUT` for what is no occurrence; `CONFLICT` when its time has passed.
    """
    series, _ = locked_series(connection, series_id)
    instant_ms = _occurrence(series, named)
    if instant_ms not in series.skipped:
        return
    _refuse_passed(instant_ms, at.ms)
    fact = Fact("series.unskipped", {"occurrence": instant_ms})
    # Made are all before an instant: it is looked at from here on again, and what is there is found by its key.
    made_until_ms = min(series.made_until_ms, instant_ms)
    _record_skipped(connection, at, series, fact, {*series.skipped} - {instant_ms}, made_until_ms=made_until_ms)


def change(
    connection: Connection,
    at: Moment,
    series_id: str,
    asked: OccurrenceChange,
    index: PoolIndex,
    guard: Guard | None = None,
) -> str:
    """Give one occurrence another start, duration or both; return its reservation. No other occurrence is touched.

    One that has no reservation yet gets it now.

    Raises:
        Problem: `NOT_FOUND`; `FORBIDDEN`; `INVALID_INPUT` for what is no occurrence or no window; `CONFLICT` when it
            has begun, is skipped, or is placed and does not fit in the other window. Nothing was changed.
    """
    if guard is not None:  # before anything is told of its state
        known = known_series(connection, series_id)
        window = Window(at.ms, at.ms + known.duration_ms)
        _check(connection, guard, known, read.known_pool(connection, known.pool_id), window)
    series, pool_row = locked_series(connection, series_id)
    instant_ms = _occurrence(series, asked.occurrence)
    if instant_ms in series.skipped:
        raise Problem(Code.CONFLICT, "this occurrence is skipped: `muster series unskip` takes it back first")
    made = _made(connection, series, instant_ms)
    former = Window(instant_ms, instant_ms + series.duration_ms) if made is None else made.window
    window = _window(asked, former, at.ms, pool_row.policy)
    _check(connection, guard, series, pool_row, window)
    if made is None:
        _refuse_passed(instant_ms, at.ms)
        wanted = series.wanted(instant_ms, at.new_id("rsv"), at.ms)
        insert_new(connection, at, wanted, pending_columns(wanted.reservation, at.ms), None)
        made = wanted.reservation
    elif made.state not in UNBEGUN:
        raise Problem(Code.CONFLICT, f"this occurrence has begun or ended ({made.id} is {made.state})")
    elif window == former:
        return made.id
    late_ms = series.late_ms
    latest_ms = None if late_ms is None else window.start_ms + late_ms
    move(connection, at, pool_row, made, window, latest_ms, index)
    told = {"occurrence": instant_ms, "reservationId": made.id, "start": window.start_ms, "end": window.end_ms}
    record_series(connection, at, series, Fact("series.changed", told))
    return made.id


def _check(connection: Connection, guard: Guard | None, series: Series, pool_row: PoolRow, window: Window) -> None:
    if guard is not None:
        weight = weight_of(drafts.shape_of(series.asked), series.asked.gang.size, window.start_ms, window.duration_ms)
        guard.check(connection, Resource("Series", series.id, pool_row.name, series.tenant_id), weight)


def _made(connection: Connection, series: Series, instant_ms: int) -> Reservation | None:
    reservation_id = made_before(connection, Occurrence(series.id, instant_ms))
    found = None if reservation_id is None else read.reservation(connection, reservation_id, lock=True)
    return None if found is None else found[0]


def _record_skipped(
    connection: Connection, at: Moment, series: Series, fact: Fact, skipped: set[int], **changes: int
) -> None:
    kept = sorted(instant_ms for instant_ms in skipped if instant_ms + series.duration_ms > at.ms)
    record_series(connection, at, series, fact, skipped=dumps(kept).decode(), **changes)


def _occurrence(series: Series, named: str | int) -> int:
    """Return the occurrence that is meant: by its instant, or by its day where the day has only one."""
    if is_day(named):
        clocks = zone_of(series.recurrence.zone)
        day = day_of("occurrence", str(named))
        from_ms, last_ms = (instant_of(datetime.combine(day, clock), clocks) for clock in (time.min, time(23, 59, 59)))
        found = [one for one in series.coming(from_ms, 2) if one <= last_ms]
        if len(found) > 1:
            raise invalid("occurrence", f"{named} has several: give the instant, such as {format_instant(found[0])}")
    else:
        instant_ms = instant("occurrence", named, 0)
        found = [one for one in series.coming(instant_ms, 1) if one == instant_ms]
    if not found:
        raise invalid(
            "occurrence", f"{named} is no occurrence of it; `muster series get {series.id}` shows what is ahead"
        )
    return found[0]


def _window(asked: OccurrenceChange, former: Window, now_ms: int, policy: Policy) -> Window:
    if asked.start is None and asked.duration is None:
        raise invalid("start", "give another start, another duration, or both")
    start_ms = former.start_ms if asked.start is None else instant("start", asked.start, now_ms)
    duration_ms = former.duration_ms
    if asked.duration is not None:
        duration_ms = length_within("duration", asked.duration, policy)
    if start_ms < now_ms:
        raise invalid("start", f"{format_instant(start_ms)} has passed; `now` begins at once")
    if start_ms > now_ms + policy.look_ahead_ms:
        raise invalid("start", f"further ahead than the pool allows ({format_duration(policy.look_ahead_ms)})")
    return Window(start_ms, start_ms + duration_ms)


def _refuse_passed(instant_ms: int, now_ms: int) -> None:
    if instant_ms <= now_ms:
        raise Problem(Code.CONFLICT, f"this occurrence has passed ({format_instant(instant_ms)})")
