"""What an owner does with a series: create it, skip, change or take back one occurrence, and cancel what is ahead."""

import re
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, Final

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import EndReason, Policy, Reservation, State
from muster_coordinator.core.series import Recurrence, begun, checked_rule, instant_of, occurrences, wall_time, zone_of
from muster_coordinator.service import draft as drafts
from muster_coordinator.service.admit import insert_new, wanted_pool
from muster_coordinator.service.advance import end_at_once
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.move import move
from muster_coordinator.service.occurrence import (
    ACTIVE,
    ENDED,
    Occurrence,
    Series,
    known_series,
    made_before,
    record_series,
)
from muster_coordinator.service.series_bodies import OccurrenceChange, SeriesRequest
from muster_coordinator.service.waiting import pending_columns
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import RESERVATION, SERIES
from muster_shared.codec import dumps, encode
from muster_shared.errors import Code, FieldError, Problem, invalid
from muster_shared.time import MS_MAX, Window, format_duration, format_instant, parse_duration, parse_instant

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_UNBEGUN: Final = (State.PENDING, State.PLACED)


@dataclass(frozen=True, slots=True)
class Created:
    """The answer to a create: which series, and whether an earlier call had made it."""

    series_id: str
    replayed: bool


def create(connection: Connection, at: Moment, request: SeriesRequest) -> Created:
    """Create a series; its occurrences are made by `ahead`. A flow, for the sake of its second look.

    Args:
        connection: Outside any transaction.
        at: Now: an occurrence that has begun by then is none of it.
        request: As the tenant wrote it.

    Raises:
        Problem: `INVALID_INPUT`, `NOT_FOUND` for the pool, `IDEMPOTENCY_MISMATCH`. Nothing was stored.
    """
    try:
        with connection.begin():
            return _earlier(connection, request) or _created(connection, at, request)
    except IntegrityError:
        # The same key came in for another pool at the same time: no lock of ours is common to both.
        with connection.begin():
            if (earlier := _earlier(connection, request)) is None:
                raise
            return earlier


def _created(connection: Connection, at: Moment, request: SeriesRequest) -> Created:
    pool_row = read.known_pool(connection, wanted_pool(connection, request).id, lock=True)
    if (earlier := _earlier(connection, request)) is not None:
        return earlier
    drafts.shape_of(request)
    drafts.grouping_of(request.gang)
    duration_ms = _duration("duration", request.duration, pool_row.policy)
    if request.latest_start_after is not None:
        _duration("latestStartAfter", request.latest_start_after, pool_row.policy)
    recurrence = _recurrence(request, at.ms)
    (first_ms,) = occurrences(recurrence, 0, MS_MAX, 1) or (MS_MAX,)
    if first_ms > at.ms + pool_row.policy.look_ahead_ms:
        ahead = format_duration(pool_row.policy.look_ahead_ms)
        raise invalid("rule", f"has no occurrence in the next {ahead}, which is as far ahead as the pool allows")
    series_id = at.new_id("series")
    row: dict[str, Any] = {
        "id": series_id,
        "tenant_id": request.tenant_id,
        "pool_id": pool_row.id,
        "name": request.name,
        "state": ACTIVE,
        "rule": recurrence.rule,
        "zone": recurrence.zone,
        "first": recurrence.first,
        "request": encode(request).decode(),
        "duration_ms": duration_ms,
        "skipped": "[]",
        "made_until_ms": first_ms,
        "version": 1,
        "created_ms": at.ms,
        "idempotency_key": request.idempotency_key,
        "body_hash": drafts.body_hash(request),
    }
    connection.execute(insert(SERIES).values(row))
    told = {"tenantId": request.tenant_id, "rule": recurrence.rule, "zone": recurrence.zone, "start": first_ms}
    fact = Fact("series.created", told)
    commit.emit(connection, at, fact, subject=series_id, version=1, pool_id=pool_row.id)
    return Created(series_id, replayed=False)


def _recurrence(request: SeriesRequest, now_ms: int) -> Recurrence:
    try:
        clocks = zone_of(request.zone)
    except ValueError as error:
        raise invalid("zone", str(error)) from None
    day = None if request.first_day is None else _day(request.first_day, "firstDay")
    if day is not None and day < wall_time(now_ms, clocks).date():
        raise invalid("firstDay", "has passed; leave it out to count from today")
    try:
        found = begun(checked_rule(request.rule), request.zone, time.fromisoformat(request.at), day, now_ms)
    except ValueError as error:
        raise invalid("rule", str(error)) from None
    if found is None:
        raise invalid("rule", "has no occurrence from now on: no day is like that, or UNTIL has passed")
    return found


def skip(connection: Connection, at: Moment, series_id: str, named: str | int) -> None:
    """Leave one occurrence out; a booking of it is given up. Skipping it again changes nothing.

    Raises:
        Problem: `NOT_FOUND`; `INVALID_INPUT` for what is no occurrence; `CONFLICT` when it has begun, or passed,
            or the series has ended.
    """
    series, _ = _locked(connection, series_id)
    _refuse_ended(series)
    instant_ms = _occurrence(series, named)
    if instant_ms in series.skipped:
        return
    reservation = _made(connection, series, instant_ms)
    if reservation is None:
        _refuse_passed(instant_ms, at.ms)
    elif reservation.state in _UNBEGUN:
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
    series, _ = _locked(connection, series_id)
    _refuse_ended(series)
    instant_ms = _occurrence(series, named)
    if instant_ms not in series.skipped:
        return
    _refuse_passed(instant_ms, at.ms)
    fact = Fact("series.unskipped", {"occurrence": instant_ms})
    # Made are all before an instant: it is looked at from here on again, and what is there is found by its key.
    made_until_ms = min(series.made_until_ms, instant_ms)
    _record_skipped(connection, at, series, fact, {*series.skipped} - {instant_ms}, made_until_ms=made_until_ms)


def change(connection: Connection, at: Moment, series_id: str, asked: OccurrenceChange, index: PoolIndex) -> str:
    """Give one occurrence another start, duration or both; return its reservation. No other occurrence is touched.

    One that has no reservation yet gets it now.

    Raises:
        Problem: `NOT_FOUND`; `INVALID_INPUT` for what is no occurrence or no window; `CONFLICT` when it has begun,
            is skipped, or is placed and does not fit in the other window. Nothing was changed.
    """
    series, pool_row = _locked(connection, series_id)
    _refuse_ended(series)
    instant_ms = _occurrence(series, asked.occurrence)
    if instant_ms in series.skipped:
        raise Problem(Code.CONFLICT, "this occurrence is skipped: `muster series unskip` takes it back first")
    made = _made(connection, series, instant_ms)
    former = Window(instant_ms, instant_ms + series.duration_ms) if made is None else made.window
    window = _window(asked, former, at.ms, pool_row.policy)
    if made is None:
        _refuse_passed(instant_ms, at.ms)
        wanted = series.wanted(instant_ms, at.new_id("rsv"), at.ms)
        insert_new(connection, at, wanted, pending_columns(wanted.reservation, at.ms), None)
        made = wanted.reservation
    elif made.state not in _UNBEGUN:
        raise Problem(Code.CONFLICT, f"this occurrence has begun or ended ({made.id} is {made.state})")
    elif window == former:
        return made.id
    late_ms = series.late_ms
    latest_ms = None if late_ms is None else window.start_ms + late_ms
    move(connection, at, pool_row, made, window, latest_ms, index)
    told = {"occurrence": instant_ms, "reservationId": made.id, "start": window.start_ms, "end": window.end_ms}
    record_series(connection, at, series, Fact("series.changed", told))
    return made.id


def cancel(connection: Connection, at: Moment, series_id: str, since: str | int | None) -> None:
    """End a series, now or from an instant on. What has begun goes on. Cancelling again changes nothing.

    Raises:
        Problem: `NOT_FOUND`; `INVALID_INPUT`; `CONFLICT` when its rule was over before.
    """
    series, _ = _locked(connection, series_id)
    from_ms = at.ms if since is None else _instant("from", since, series, at.ms)
    if series.state == ENDED and series.end_reason == EndReason.CANCELLED:
        return
    _refuse_ended(series)
    if from_ms > at.ms and series.until_ms is not None and series.until_ms <= from_ms:
        return
    mine = select(RESERVATION.c.id).where(RESERVATION.c.series_id == series.id, RESERVATION.c.state.in_(_UNBEGUN))
    if from_ms > at.ms:
        mine = mine.where(RESERVATION.c.occurrence_ms >= from_ms)
    cancelled = list(connection.execute(mine.order_by(RESERVATION.c.id)).scalars())
    for reservation_id in cancelled:
        found = read.reservation(connection, reservation_id, lock=True)
        assert found is not None, "reservations are never deleted"
        end_at_once(connection, at, found[0], EndReason.CANCELLED)
    if from_ms > at.ms:
        fact = Fact("series.cut", {"start": from_ms, "reservations": cancelled})
        record_series(connection, at, series, fact, until_ms=from_ms)
        return
    fact = Fact("series.ended", {"reason": EndReason.CANCELLED, "reservations": cancelled})
    record_series(
        connection, at, series, fact, state=ENDED, end_reason=EndReason.CANCELLED, ended_ms=at.ms, until_ms=at.ms
    )


def _locked(connection: Connection, series_id: str) -> tuple[Series, PoolRow]:
    pool_row = read.known_pool(connection, known_series(connection, series_id).pool_id, lock=True)
    return known_series(connection, series_id), pool_row


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
    if isinstance(named, str) and _DAY.fullmatch(named):
        clocks = zone_of(series.recurrence.zone)
        day = _day(named, "occurrence")
        from_ms, last_ms = (instant_of(datetime.combine(day, clock), clocks) for clock in (time.min, time(23, 59, 59)))
        found = [one for one in series.coming(from_ms, 2) if one <= last_ms]
        if len(found) > 1:
            raise invalid("occurrence", f"{named} has several: give the instant, such as {format_instant(found[0])}")
    else:
        instant_ms = _instant("occurrence", named, series, 0)
        found = [one for one in series.coming(instant_ms, 1) if one == instant_ms]
    if not found:
        raise invalid(
            "occurrence", f"{named} is no occurrence of it; `muster series get {series.id}` shows what is ahead"
        )
    return found[0]


def _instant(path: str, written: str | int, series: Series, now_ms: int) -> int:
    """Read an instant, or a day as the midnight with which it begins on the clocks of a series."""
    if isinstance(written, str) and _DAY.fullmatch(written):
        midnight = datetime.combine(_day(written, path), time())
        return instant_of(midnight, zone_of(series.recurrence.zone))
    try:
        return parse_instant(str(written), now_ms)
    except ValueError as error:
        raise invalid(path, str(error)) from None


def _day(written: str, path: str) -> date:
    try:
        return date.fromisoformat(written)
    except ValueError:
        raise invalid(path, f"{written} is no day of the calendar") from None


def _duration(path: str, written: str, policy: Policy) -> int:
    try:
        duration_ms = parse_duration(written)
    except ValueError as error:
        raise invalid(path, str(error)) from None
    if duration_ms > policy.max_duration_ms:
        raise invalid(path, f"longer than the pool allows ({format_duration(policy.max_duration_ms)})")
    return duration_ms


def _window(asked: OccurrenceChange, former: Window, now_ms: int, policy: Policy) -> Window:
    if asked.start is None and asked.duration is None:
        raise invalid("start", "give another start, another duration, or both")
    start_ms = former.start_ms
    if asked.start is not None:
        try:
            start_ms = parse_instant(str(asked.start), now_ms)
        except ValueError as error:
            raise invalid("start", str(error)) from None
    duration_ms = former.duration_ms if asked.duration is None else _duration("duration", asked.duration, policy)
    if start_ms < now_ms:
        raise invalid("start", f"{format_instant(start_ms)} has passed; `now` begins at once")
    if start_ms > now_ms + policy.look_ahead_ms:
        raise invalid("start", f"further ahead than the pool allows ({format_duration(policy.look_ahead_ms)})")
    return Window(start_ms, start_ms + duration_ms)


def _refuse_ended(series: Series) -> None:
    if series.state != ACTIVE:
        raise Problem(Code.CONFLICT, f"{series.id} has ended ({series.end_reason})")


def _refuse_passed(instant_ms: int, now_ms: int) -> None:
    if instant_ms <= now_ms:
        raise Problem(Code.CONFLICT, f"this occurrence has passed ({format_instant(instant_ms)})")


def _earlier(connection: Connection, request: SeriesRequest) -> Created | None:
    if request.idempotency_key is None:
        return None
    mine = SERIES.c.tenant_id == request.tenant_id, SERIES.c.idempotency_key == request.idempotency_key
    row = connection.execute(select(SERIES.c.id, SERIES.c.body_hash).where(*mine)).first()
    if row is None:
        return None
    if row.body_hash != drafts.body_hash(request):
        raise Problem(
            Code.IDEMPOTENCY_MISMATCH,
            f"the key {request.idempotency_key!r} was used for another series ({row.id}): use a new key",
            (FieldError("idempotencyKey", "used with another body"),),
        )
    return Created(row.id, replayed=True)
