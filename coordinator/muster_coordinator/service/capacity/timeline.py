"""Capacity over time: the timeline of a week, and the outlook far beyond it. Reads only."""

from operator import itemgetter
from typing import Final

from sqlalchemy import Connection

from muster_coordinator.clock import Moment
from muster_coordinator.core.placement.filters import group_value
from muster_coordinator.core.timeline.buckets import Frame, booked_gpus, free_nodes
from muster_coordinator.core.timeline.rollup import allocatable
from muster_coordinator.service.admit import DEFAULT_POOL
from muster_coordinator.service.capacity.bodies import (
    BucketView,
    OutlookBucketView,
    OutlookQuery,
    OutlookView,
    TimelineQuery,
    TimelineView,
)
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.look import known_pool
from muster_coordinator.service.when import instant, length
from muster_shared.errors import Problem, invalid
from muster_shared.time import MS_MAX, Window, format_duration

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
BUCKETS_MAX: Final = 336  # of one answer: a week in half hours. Source: design, section 10
TIMELINE_MS: Final = 7 * _DAY_MS  # the same
OUTLOOK_MS: Final = 120 * _DAY_MS  # a season of planning, and a budget's period
_OUTLOOK_ASKED_MS: Final = 28 * _DAY_MS  # four weeks, in days
_BUCKET_MS: Final = _HOUR_MS // 2
_CHOSEN_MAX: Final = 32  # buckets where their length is not given: a screenful
_LENGTHS_MS: Final = tuple(hours * _HOUR_MS for hours in (1, 3, 6, 12, 24, 48, 96))  # of them, what divides days


def timeline(connection: Connection, at: Moment, query: TimelineQuery, index: PoolIndex) -> TimelineView:
    """Count the booked and free GPUs of a pool in each bucket of a window.

    What ended before now is not in the calendar any more: buckets of the past count what still stands.

    Raises:
        Problem: `NOT_FOUND` for the pool; `INVALID_INPUT` for a window or bucket that is empty, over, or too long.

    Source: design, section 10.
    """
    pool_row = known_pool(connection, query.pool_id or DEFAULT_POOL)
    bucket_ms = _BUCKET_MS if query.bucket is None else length("bucket", query.bucket)
    window = _window(query, at.ms, bucket_ms, TIMELINE_MS, TIMELINE_MS)
    frame = _frame(window, bucket_ms)
    snapshot = index.snapshot(connection, pool_row, at)
    offered = allocatable(snapshot)
    counts = booked_gpus(snapshot, frame, at.ms)
    buckets = [
        BucketView(start=bucket.start_ms, end=bucket.end_ms, booked=booked, free=max(0, offered - booked))
        for bucket, booked in zip(frame.buckets(), counts, strict=True)
    ]
    return TimelineView(pool_id=pool_row.id, allocatable=offered, buckets=buckets)


def outlook(connection: Connection, at: Moment, query: OutlookQuery, index: PoolIndex) -> OutlookView:
    """Count booked and free GPUs far ahead, and the whole nodes of each topology value that are free all the while.

    Raises:
        Problem: As `timeline`.
    """
    pool_row = known_pool(connection, query.pool_id or DEFAULT_POOL)
    given_ms = None if query.bucket is None else length("bucket", query.bucket)
    window = _window(query, at.ms, given_ms or _DAY_MS, OUTLOOK_MS, _OUTLOOK_ASKED_MS)
    frame = _frame(window, given_ms or _chosen_ms(window))
    snapshot = index.snapshot(connection, pool_row, at)
    offered = allocatable(snapshot)
    counts = booked_gpus(snapshot, frame, at.ms)
    values = [group_value(view, query.topology_key) for view in snapshot.ordered]
    gangs = free_nodes(snapshot, frame, values, at.ms)
    buckets: list[OutlookBucketView] = []
    for number, bucket in enumerate(frame.buckets()):
        sizes: list[tuple[int, str | None]] = [(nodes[number], value) for value, nodes in gangs.items()]
        size, value = max(sizes, key=itemgetter(0), default=(0, None))
        buckets.append(
            OutlookBucketView(
                start=bucket.start_ms,
                end=bucket.end_ms,
                booked=counts[number],
                free=max(0, offered - counts[number]),
                largest_gang=size,
                topology_value=value if size else None,
            )
        )
    return OutlookView(
        pool_id=pool_row.id,
        allocatable=offered,
        topology_key=query.topology_key,
        buckets=buckets,
        largest_gang=gangs,
    )


def _window(query: TimelineQuery | OutlookQuery, now_ms: int, bucket_ms: int, most_ms: int, asked_ms: int) -> Window:
    """Resolve the window that was asked for; without a start, from the bucket on that now is in."""
    start_ms = instant("start", query.start, now_ms)
    if start_ms is None:
        start_ms = now_ms - now_ms % min(bucket_ms, _DAY_MS)
    if query.end is not None and query.duration is not None:
        raise invalid("end", "give either an end or a duration")
    end_ms = instant("end", query.end, now_ms)
    if end_ms is None:
        end_ms = start_ms + (asked_ms if query.duration is None else length("duration", query.duration))
    if end_ms <= start_ms:
        raise invalid("end", "not after the start")
    if end_ms - start_ms > most_ms:
        raise _too_long(most_ms)
    if end_ms > MS_MAX:
        raise invalid("end", "after the year 9999")
    if end_ms <= now_ms:
        raise invalid("end", "has passed: the calendar looks ahead; `muster events` tells what happened")
    return Window(start_ms, end_ms)


def _too_long(most_ms: int) -> Problem:
    further = "; `muster outlook` (GET /v1/capacity/outlook) looks further ahead" if most_ms == TIMELINE_MS else ""
    most = f"at most {most_ms // _DAY_MS} days and {BUCKETS_MAX} buckets in one answer"
    return invalid("end", f"{most}: ask for a shorter window{further}")


def _frame(window: Window, bucket_ms: int) -> Frame:
    frame = Frame(window, bucket_ms)
    if frame.count > BUCKETS_MAX:
        least_ms = -(-window.duration_ms // BUCKETS_MAX)
        raise invalid(
            "bucket",
            f"at most {BUCKETS_MAX} buckets in one answer, and this window has {frame.count}: "
            f"ask for buckets of at least {format_duration(least_ms)}, or a shorter window",
        )
    return frame


def _chosen_ms(window: Window) -> int:
    """Return the shortest of the usual lengths that keeps the answer to a screenful."""
    fitting = (one for one in _LENGTHS_MS if Frame(window, one).count <= _CHOSEN_MAX)
    return next(fitting, _LENGTHS_MS[-1])
