"""Creates from the HTTP call to the answer, by a real coordinator process, on SQLite and on PostgreSQL."""

import asyncio
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

import aiohttp

from muster_coordinator.clock import Moment, SystemClock
from muster_coordinator.store.engine import Database
from muster_shared.time import format_instant
from muster_shared.wire import FABRIC_DOMAIN
from scripts.bench_pool import NOW_MS, SHIFT_MS, fill, nodes
from scripts.bench_row import Row, in_ms, median_ms
from tests.support.postgres import serving

_NODES: Final = 512
_DOMAIN: Final = 18  # nodes of a rack of NVL72
_GANG: Final = 4
_HISTORIES: Final = (0, 2_000, 50_000)  # bookings that the pool already has
_ONE_BY_ONE: Final = 60
_AT_ONCE: Final = 240
_WRITERS: Final = 8
_GANGS_A_SHIFT: Final = 100  # they fit, with room to spare
_FIRST_SHIFT: Final = 400  # after every booking there is
_SQLITE_TARGET_PER_S, _POSTGRESQL_TARGET_PER_S = 50.0, 100.0
_ROW_BYTES: Final = 160  # the width of a booking with its ids
_ROWS_EACH: Final = 2 * _GANG + 3  # allocations and bookings; the reservation, two events
DISK: Final = Path(__file__).parents[1] / "build"  # a real disk, where /tmp may be memory


def rows(group: str, progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure creates one by one beside 0, 2,000 and 50,000 bookings, and by eight writers on both engines."""
    DISK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DISK) as name:
        folder = Path(name)
        raw_ms = _raw_ms(folder / "raw.sqlite")
        first_ms = 0.0
        for history in _HISTORIES:
            progress(f"gangs of {_GANG} one by one, beside {history:,} bookings (SQLite)")
            each_ms, per_s = _measured(f"sqlite:///{folder / f'r{history}.sqlite'}", history)
            first_ms = first_ms or each_ms
            target_ms = 1_000 / _SQLITE_TARGET_PER_S if not history else round(2 * first_ms, 3)
            yield Row(group, f"create_gang4_512n_r{history}_ms", each_ms, "ms", target_ms, raw_ms)
            if history == _HISTORIES[1]:
                baseline = round(1_000 / raw_ms, 1)
                yield Row(group, "create_gang4_sqlite_per_s", per_s, "per s", _SQLITE_TARGET_PER_S, baseline)
        progress(f"gangs of {_GANG} by {_WRITERS} writers (PostgreSQL)")
        with serving(None) as cluster:
            _, per_s = _measured(cluster.url(cluster.create()), _HISTORIES[1])
        yield Row(group, "create_gang4_pg_per_s", per_s, "per s", _POSTGRESQL_TARGET_PER_S, round(1_000 / raw_ms, 1))


def _measured(url: str, history: int) -> tuple[float, float]:
    """Return the median time of a create when they come one by one, ms, and how many a second eight writers get."""
    asyncio.run(_filled(url, history))
    with serving_coordinator(url) as address:
        return asyncio.run(_created(address))


async def _filled(url: str, history: int) -> None:
    database = Database(url)
    at = Moment(NOW_MS, Random(0))  # noqa: S311 - ids of a measurement
    await database.write(fill, at, nodes(_NODES, history, domain_nodes=_DOMAIN))
    await database.close()


@contextmanager
def serving_coordinator(url: str) -> Iterator[str]:
    """Run a real coordinator on a database, and return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"DATABASE": url.removeprefix("sqlite:///").replace("+asyncpg", ""), "LISTEN_PORT": str(port)}
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")}
    environment = {**clean, **{f"MUSTER_COORDINATOR_{key}": value for key, value in settings.items()}}
    process = subprocess.Popen(
        [sys.executable, "-m", "muster_coordinator", "run"], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        while not _is_open(port):
            if process.poll() is not None:
                raise RuntimeError(f"the coordinator ended with status {process.returncode}")
            time.sleep(0.1)  # a real process starts, before anything is measured
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


async def _created(address: str) -> tuple[float, float]:
    now_ms = SystemClock().moment().ms
    async with aiohttp.ClientSession(address) as session:
        for number in range(10):  # what is worked out once is worked out here
            await _create(session, now_ms, number)
        times: list[float] = []
        for number in range(10, 10 + _ONE_BY_ONE):
            begun = time.perf_counter()
            await _create(session, now_ms, number)
            times.append(time.perf_counter() - begun)
        numbers = iter(range(1_000, 1_000 + _AT_ONCE))

        async def write() -> None:
            for number in numbers:
                await _create(session, now_ms, number)

        begun = time.perf_counter()
        await asyncio.gather(*(write() for _ in range(_WRITERS)))
        return in_ms(median(times)), round(_AT_ONCE / (time.perf_counter() - begun), 1)


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def _create(session: aiohttp.ClientSession, now_ms: int, number: int) -> None:
    start_ms = now_ms + (_FIRST_SHIFT + number // _GANGS_A_SHIFT) * SHIFT_MS
    body = {
        "tenantId": "bench",
        "devices": [{"count": 8}],
        "gang": {"size": _GANG, "topologyKey": FABRIC_DOMAIN},
        "start": format_instant(start_ms),
        "duration": "12h",
    }
    async with session.post("/v1/reservations", json=body) as answer:
        made = await answer.json()
    assert made["state"] == "placed", made


def _raw_ms(path: Path) -> float:
    """Return the median time of as many rows of like width in a transaction, by SQLite's driver alone."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE row (text TEXT)"):
            connection.execute(statement)

        def write(texts: list[tuple[str]]) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO row (text) VALUES (?)", texts)
            connection.execute("COMMIT")

        return median_ms(write, [[("x" * _ROW_BYTES,)] * _ROWS_EACH] * _ONE_BY_ONE, time.perf_counter)
