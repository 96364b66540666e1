"""The background pass where nothing is due: 10,000 reservations, most of them ahead, the others in use."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

from sqlalchemy import Connection, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.advance import next_step
from muster_coordinator.core.model import Entry, Shape, State
from muster_coordinator.store import read
from muster_coordinator.store.engine import Database
from muster_coordinator.store.tables import NODE, RESERVATION
from muster_shared.time import Window
from scripts.bench_pool import HOUR_MS, NOW_MS, book, fill, nodes
from scripts.bench_row import Row, in_ms
from scripts.bench_rows import Gang
from tests.support.service_world import Coordinator, WorldClock

_NODES: Final = 2_016
_RESERVATIONS: Final = 10_000
_IN_USE: Final = 2_000
_PASSES: Final = 15
_BEAT_MS: Final = 1_000  # between passes, so that the lease is renewed in some of them, as it is in life
_TARGET_MS: Final = 100.0
_ONE_GPU: Final = Shape((Entry("gpu", 1),))
_DISK: Final = Path(__file__).parents[1] / "build"  # a real disk, where /tmp may be memory


def rows(group: str, progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure a pass; the baseline asks each reservation what it needs next."""
    _DISK.mkdir(exist_ok=True)
    progress(f"a background pass over {_RESERVATIONS:,} reservations of which none needs anything (SQLite)")
    with tempfile.TemporaryDirectory(dir=_DISK) as folder:
        value, baseline = asyncio.run(_pass_ms(f"sqlite:///{folder}/idle.sqlite"))
    yield Row(group, "lifecycle_10000_ms", value, "ms", _TARGET_MS, baseline)


async def _pass_ms(url: str) -> tuple[float, float]:
    clock = WorldClock(NOW_MS)
    coordinator = Coordinator(url, clock, "bench", opener=Database)
    await coordinator.write(fill, nodes(_NODES, 0))
    await coordinator.write(book, _idle())
    await coordinator.passes.run_once()  # takes the lease, and what is worked out once
    times: list[float] = []
    for _ in range(_PASSES):
        clock.ms += _BEAT_MS
        await coordinator.write(_heard)
        begun = time.perf_counter()
        await coordinator.passes.run_once()
        times.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    due = await coordinator.database.read(_asked_one_by_one, clock.ms)
    naive_ms = in_ms(time.perf_counter() - begun)
    assert due == 0, "the scene is not idle"
    await coordinator.database.close()
    return in_ms(median(times)), naive_ms


def _idle() -> list[Gang]:
    """One GPU each: those in use each on their own, those ahead a day later, five to a GPU, one after the other."""
    used = Window(NOW_MS - HOUR_MS, NOW_MS + 12 * HOUR_MS)
    gangs = [
        Gang(f"rsv_used_{number:05}", (_node(number),), 1 << number % 8, used, state=State.ACTIVE, shape=_ONE_GPU)
        for number in range(_IN_USE)
    ]
    for number in range(_RESERVATIONS - _IN_USE):
        begin_ms = NOW_MS + (24 + number % 5) * HOUR_MS
        ahead = Window(begin_ms, begin_ms + HOUR_MS)
        name, check_ms = f"rsv_ahead_{number:05}", begin_ms - HOUR_MS // 4
        gpu = number // 5
        gangs.append(Gang(name, (_node(gpu),), 1 << gpu % 8, ahead, check_due_ms=check_ms, shape=_ONE_GPU))
    return gangs


def _node(number: int) -> str:
    return f"node_{number // 8 % _NODES:05}"


def _heard(connection: Connection, at: Moment) -> None:
    connection.execute(update(NODE).values(last_report_ms=at.ms))


def _asked_one_by_one(connection: Connection, now_ms: int) -> int:
    """Return how many reservations need a step, by asking all that are not over, their members left out."""
    (pool_row,) = read.pools(connection)
    wanted = select(RESERVATION).where(RESERVATION.c.state != State.ENDED)
    return sum(
        next_step(read.as_reservation(row), now_ms, pool_row.policy, row["check_due_ms"], 0) is not None
        for row in connection.execute(wanted).mappings()
    )
