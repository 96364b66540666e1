"""What an owner does with a whole series: create it, and cancel what is ahead of it."""

from dataclasses import dataclass
from datetime import time
from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import EndReason
from muster_coordinator.core.quota import least_milli
from muster_coordinator.core.series import Recurrence, begun, checked_rule, occurrences, wall_time, zone_of
from muster_coordinator.service import draft as drafts
from muster_coordinator.service.access.caller import Resource
from muster_coordinator.service.access.guard import Guard, watched
from muster_coordinator.service.access.weight import weight_of
from muster_coordinator.service.accounts.charge import refuse_never
from muster_coordinator.service.admit import wanted_pool
from muster_coordinator.service.changes.ends import end_at_once
from muster_coordinator.service.series.bodies import SeriesRequest
from muster_coordinator.service.series.days import day_of, instant_or_day, length_within
from muster_coordinator.service.series.occurrence import (
    ACTIVE,
    ENDED,
    UNBEGUN,
    known_series,
    locked_series,
    record_series,
)
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.tables import RESERVATION, SERIES
from muster_shared.codec import encode
from muster_shared.errors import Code, FieldError, Problem, invalid
from muster_shared.time import MS_MAX, format_duration


@dataclass(frozen=True, slots=True)
class Created:
    """The answer to a create: which series, and whether an earlier call had made it."""

    series_id: str
    replayed: bool


def create(connection: Connection, at: Moment, request: SeriesRequest, guard: Guard | None = None) -> Created:
    """Create a series; its occurrences are made by `ahead`. A flow, for the sake of its second look.

    Args:
        connection: Outside any transaction.
        at: Now: an occurrence that has begun by then is none of it.
        request: As the tenant wrote it.
        guard: Of whoever asks; None for the coordinator itself. What a policy allows here it allows for every
            occurrence.

    Raises:
        Problem: `INVALID_INPUT`, `NOT_FOUND` for the pool, `IDEMPOTENCY_MISMATCH`, `FORBIDDEN`. Nothing was stored.
    """
    try:
        with connection.begin(), watched(connection, guard):
            return _earlier(connection, request, guard) or _created(connection, at, request, guard)
    except IntegrityError:
        # The same key came in for another pool at the same time: no lock of ours is common to both.
        with connection.begin():
            if (earlier := _earlier(connection, request, guard)) is None:
                raise
            return earlier


def _created(connection: Connection, at: Moment, request: SeriesRequest, guard: Guard | None) -> Created:
    pool_row = read.known_pool(connection, wanted_pool(connection, request).id, lock=True)
    if (earlier := _earlier(connection, request, guard)) is not None:
        return earlier
    shape = drafts.shape_of(request)
    drafts.grouping_of(request.gang)
    duration_ms = length_within("duration", request.duration, pool_row.policy)
    if request.latest_start_after is not None:
        length_within("latestStartAfter", request.latest_start_after, pool_row.policy)
    recurrence = _recurrence(request, at.ms)
    (first_ms,) = occurrences(recurrence, 0, MS_MAX, 1) or (MS_MAX,)
    if first_ms > at.ms + pool_row.policy.look_ahead_ms:
        ahead = format_duration(pool_row.policy.look_ahead_ms)
        raise invalid("rule", f"has no occurrence in the next {ahead}, which is as far ahead as the pool allows")
    series_id = at.new_id("series")
    if guard is not None:
        weight = weight_of(shape, request.gang.size, first_ms, duration_ms)
        guard.check(connection, Resource("Series", series_id, pool_row.name, request.tenant_id), weight)
    refuse_never(connection, pool_row.id, request.tenant_id, least_milli(shape, request.gang.size))
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
    day = None if request.first_day is None else day_of("firstDay", request.first_day)
    if day is not None and day < wall_time(now_ms, clocks).date():
        raise invalid("firstDay", "has passed; leave it out to count from today")
    try:
        found = begun(checked_rule(request.rule), request.zone, time.fromisoformat(request.at), day, now_ms)
    except ValueError as error:
        raise invalid("rule", str(error)) from None
    if found is None:
        raise invalid("rule", "has no occurrence from now on: no day is like that, or UNTIL has passed")
    return found


def cancel(connection: Connection, at: Moment, series_id: str, since: str | int | None) -> None:
    """End a series, now or from an instant on. What has begun goes on. Cancelling again changes nothing.

    Raises:
        Problem: `NOT_FOUND`; `INVALID_INPUT`; `CONFLICT` when its rule was over before.
    """
    read.known_pool(connection, known_series(connection, series_id).pool_id, lock=True)
    if known_series(connection, series_id).end_reason == EndReason.CANCELLED:
        return
    series, _ = locked_series(connection, series_id)
    from_ms = at.ms if since is None else instant_or_day("from", since, series, at.ms)
    if from_ms > at.ms and series.until_ms is not None and series.until_ms <= from_ms:
        return
    mine = select(RESERVATION.c.id).where(RESERVATION.c.series_id == series.id, RESERVATION.c.state.in_(UNBEGUN))
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


def _earlier(connection: Connection, request: SeriesRequest, guard: Guard | None) -> Created | None:
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
    if guard is not None:  # nobody sees by its key what they may not see by its id
        resource = Resource("Series", row.id, wanted_pool(connection, request).name, request.tenant_id)
        guard.check(connection, resource, None, "compute:series:read")
    return Created(row.id, replayed=True)
