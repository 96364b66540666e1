"""The group `placement`: how long a plan takes, and how long until it is durable."""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from sqlalchemy import Connection, Engine, event

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Node, Request, Shape
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service.admit import reserve
from muster_coordinator.service.bodies import DeviceRequest, GangRequest, ReservationRequest
from muster_coordinator.store.engine import Database
from muster_shared.time import Window, format_instant
from muster_shared.wire import FABRIC_DOMAIN
from scripts.bench_pool import HOUR_MS, NOW_MS, SHIFT_MS, fill, nodes, shifts
from scripts.bench_row import Row, in_ms, median_ms
from scripts.bench_sweep import naive_gang

GROUP: Final = "placement"

# Source of sizes and targets: the pools and figures that the project has promised.
_NODES, _BOOKINGS, _GANG = 1_000, 10_000, 16
_SMALL_POOL, _SMALL_GANG = 64, 4
_PLANS, _COMMITS, _CREATES = 60, 15, 40  # enough for a steady median, few enough for a short run
_PLAN_TARGET_MS, _COMMIT_TARGET_MS, _CREATE_TARGET_PER_S = 10.0, 50.0, 50.0
_ROW_BYTES: Final = 160  # the width of a booking with its ids
_DISK: Final = Path(__file__).parents[1] / "build"  # a real disk, where /tmp may be memory


def rows(progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure the group."""
    progress(f"a pool of {_NODES} nodes with {_BOOKINGS} bookings")
    pool = nodes(_NODES, _BOOKINGS)
    progress(f"{_PLANS} plans, and as many by a full sweep")
    yield _plan_row(pool)
    _DISK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_DISK) as folder:
        progress(f"{_COMMITS} gangs of {_GANG} into SQLite, and as many rows without Muster")
        yield asyncio.run(_commit_row(Path(folder), pool))
        progress(f"{_CREATES} gangs of {_SMALL_GANG} from request to answer")
        yield asyncio.run(_create_row(Path(folder), nodes(_SMALL_POOL, 10 * _SMALL_POOL)))


def _plan_row(pool: list[Node]) -> Row:
    # Windows in the middle of two shifts: each plan has other bookings to look at.
    starts = [NOW_MS + shift % shifts(pool) * SHIFT_MS + 6 * HOUR_MS for shift in range(_PLANS)]
    requests = [
        Request(Shape("gpu", 8, "nvlink-all"), _GANG, FABRIC_DOMAIN, Window(start_ms, start_ms + SHIFT_MS))
        for start_ms in starts
    ]
    snapshot = Snapshot.of("pool", 1, pool)
    for request in requests:  # both find a gang, or neither; what is worked out once for a pool is worked out here
        assert isinstance(plan(snapshot, request), Plan) == (naive_gang(pool, request) is not None)
    value = median_ms(lambda request: plan(snapshot, request), requests, time.thread_time)
    baseline = median_ms(lambda request: naive_gang(pool, request), requests, time.thread_time)
    return Row(GROUP, "plan_gang16_1000n_ms", value, "ms", _PLAN_TARGET_MS, baseline)


async def _commit_row(folder: Path, pool: list[Node]) -> Row:
    """From the decided plan to the committed transaction: the second one of a create; the first has read the pool."""
    database = await _filled(folder / "commit.sqlite", pool)
    begun: list[float] = []

    def note(_connection: Connection) -> None:
        begun.append(time.perf_counter())

    event.listen(Engine, "begin", note)
    times: list[float] = []
    for number in range(_COMMITS):
        begun.clear()
        await database.flow(reserve, _moment(number), _asked(_GANG, number))
        times.append(time.perf_counter() - begun[1])
    event.remove(Engine, "begin", note)
    await database.close()
    baseline = _raw_ms(folder / "raw.sqlite", _rows_of(_GANG), _COMMITS)
    return Row(GROUP, "commit_gang16_sqlite_ms", in_ms(median(times)), "ms", _COMMIT_TARGET_MS, baseline)


async def _create_row(folder: Path, pool: list[Node]) -> Row:
    database = await _filled(folder / "create.sqlite", pool)
    begun = time.perf_counter()
    for number in range(_CREATES):
        await database.flow(reserve, _moment(number), _asked(_SMALL_GANG, number))
    per_s = _CREATES / (time.perf_counter() - begun)
    await database.close()
    baseline = round(1_000 / _raw_ms(folder / "raw_create.sqlite", _rows_of(_SMALL_GANG), _CREATES), 1)
    return Row(GROUP, "create_gang4_sqlite_per_s", round(per_s, 1), "per s", _CREATE_TARGET_PER_S, baseline)


def _rows_of(gang: int) -> int:
    return 2 * gang + 6  # allocations and bookings; the reservation three times, two events, the pool


async def _filled(path: Path, pool: list[Node]) -> Database:
    database = Database(f"sqlite:///{path}")
    await database.write(fill, _moment(0), pool)
    return database


def _moment(number: int) -> Moment:
    return Moment(NOW_MS, Random(number))  # noqa: S311 - ids of a measurement


def _asked(size: int, number: int) -> ReservationRequest:
    start_ms = NOW_MS + (100 + number) * SHIFT_MS  # after every booking, each in a shift of its own
    return ReservationRequest(
        tenant_id="bench",
        devices=[DeviceRequest(count=8)],
        gang=GangRequest(size=size, topology_key=FABRIC_DOMAIN),
        start=format_instant(start_ms),
        duration="12h",
    )


def _raw_ms(path: Path, rows_of_each: int, transactions: int) -> float:
    """Return the median time of as many rows of like width in a transaction, by SQLite's driver alone."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE row (text TEXT)"):
            connection.execute(statement)

        def write(texts: list[tuple[str]]) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO row (text) VALUES (?)", texts)
            connection.execute("COMMIT")

        return median_ms(write, [[("x" * _ROW_BYTES,)] * rows_of_each] * transactions, time.perf_counter)
