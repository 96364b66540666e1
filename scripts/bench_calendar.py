"""The group `calendar`: what people and programs ask about time, beside counting it booking by booking."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Final

from muster_coordinator.core.model import Node
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.core.timeline.buckets import Frame, booked_gpus
from muster_shared.time import Window
from scripts import bench_domains, bench_lifecycle, bench_storm, bench_xid
from scripts.bench_pool import HOUR_MS, NOW_MS, nodes
from scripts.bench_row import Row, median_ms

GROUP: Final = "calendar"

_WEEK_MS: Final = 7 * 24 * HOUR_MS
_BUCKET_MS: Final = HOUR_MS // 2  # 336 of them in a week: the most that one answer may have
_MINUTE_MS: Final = 60_000
_FRAMES: Final = 40  # each from another minute of the hour


def rows(progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure the group: about two minutes."""
    yield _timeline_row(progress)
    yield from bench_lifecycle.rows(GROUP, progress)
    yield from bench_xid.rows(GROUP, progress)
    yield from bench_domains.rows(GROUP, progress)
    yield from bench_storm.rows(GROUP, progress)


def _timeline_row(progress: Callable[[str], None]) -> Row:
    progress("a week in half hours, of 2,016 nodes with 20,000 bookings")
    pool = shaken(nodes(2_016, 20_000))
    snapshot = Snapshot.of("pool", 1, pool)
    frames = [Frame(Window(NOW_MS + at, NOW_MS + at + _WEEK_MS), _BUCKET_MS) for at in range(0, HOUR_MS, _MINUTE_MS)]
    assert booked_gpus(snapshot, frames[1], NOW_MS) == naive_timeline(pool, frames[1])
    value = median_ms(lambda frame: booked_gpus(snapshot, frame, NOW_MS), frames[:_FRAMES], time.thread_time)
    baseline = median_ms(lambda frame: naive_timeline(pool, frame), frames[:1], time.thread_time)
    return Row(GROUP, "timeline_2016n_ms", value, "ms", 50.0, baseline)


def shaken(pool: list[Node], seed: int = 2) -> list[Node]:
    """Return the pool with bookings that begin and end at any minute, as people's do, rather than all at the shift."""
    chance = Random(seed)  # noqa: S311 - a scene, no secret
    return [
        replace(
            node,
            booked=tuple(
                replace(one, start_ms=one.start_ms + chance.randrange(60) * _MINUTE_MS, end_ms=one.end_ms - late_ms)
                for one in node.booked
                for late_ms in [chance.randrange(60) * _MINUTE_MS]
            ),
        )
        for node in pool
    ]


def naive_timeline(pool: list[Node], frame: Frame) -> list[int]:
    """Return the same counts by asking every node about every bucket."""
    counts: list[int] = []
    for bucket in frame.buckets():
        booked = 0
        for node in pool:
            mask = 0
            for one in node.booked:
                if Window(one.start_ms, one.end_ms).overlaps(bucket):
                    mask |= one.mask
            booked += sum(mask >> atom.number & 1 for atom in node.atoms)
        counts.append(booked)
    return counts
