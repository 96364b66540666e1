"""Pending work: 10,000 reservations of 30 shapes beside one of each shape."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from sqlalchemy import Connection, insert, select

from muster_coordinator.clock import Moment
from muster_coordinator.loops.pools import PoolPass
from muster_coordinator.notifier import Notifier
from muster_coordinator.service.admit import reserve
from muster_coordinator.service.bodies import DeviceRequest, GangRequest, ReservationRequest
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.store.engine import Database
from muster_coordinator.store.tables import RESERVATION
from muster_shared.wire import FABRIC_DOMAIN
from scripts.bench_pool import DOMAIN_NODES, NOW_MS, fill, nodes
from scripts.bench_row import Row, in_ms

_SHAPES: Final = 30
_PENDING: Final = 10_000
_NODES: Final = 512
_PASSES: Final = 7
_RETRY_MS: Final = 30_000  # of the default policy
_DISK: Final = Path(__file__).parents[1] / "build"  # a real disk, where /tmp may be memory


class _Clock:
    """Jumps from one retry to the next."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self._chance = Random(1)  # noqa: S311 - ids of a measurement

    def moment(self) -> Moment:
        return Moment(self.now_ms, self._chance)

    def new_secret(self) -> str:
        return "unused"


def rows(group: str, progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure a pass over all pending work of a pool; the baseline is the same with one reservation a shape."""
    _DISK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_DISK) as folder:
        progress(f"{_SHAPES} pending shapes")
        few = asyncio.run(_pass_ms(Path(folder) / "few.sqlite", _SHAPES))
        progress(f"{_PENDING:,} pending reservations of {_SHAPES} shapes")
        many = asyncio.run(_pass_ms(Path(folder) / "many.sqlite", _PENDING))
    yield Row(group, "sweep_10000_pending_30_shapes_ms", many, "ms", round(2 * few, 3), few)


async def _pass_ms(path: Path, pending: int) -> float:
    database = Database(f"sqlite:///{path}")
    clock, index = _Clock(), PoolIndex()
    await database.write(fill, clock.moment(), nodes(_NODES, 0))
    for shape in range(_SHAPES):
        await database.flow(reserve, clock.moment(), _never(shape), index)
    await database.write(_copied, pending)
    passes = PoolPass(database, clock, Notifier(), index, "bench")
    await passes.run_once()
    times: list[float] = []
    for _ in range(_PASSES):
        clock.now_ms += _RETRY_MS
        begun = time.perf_counter()
        await passes.run_once()
        times.append(time.perf_counter() - begun)
    await database.close()
    return in_ms(median(times))


def _never(shape: int) -> ReservationRequest:
    """A gang that no fabric holds, each with another number of GPUs and nodes."""
    return ReservationRequest(
        tenant_id="bench",
        devices=[DeviceRequest(count=shape % 8 + 1)],
        gang=GangRequest(size=DOMAIN_NODES + 1 + shape // 8, topology_key=FABRIC_DOMAIN),
        duration="12h",
    )


def _copied(connection: Connection, pending: int) -> None:
    made = connection.execute(select(RESERVATION).where(RESERVATION.c.wait_key.is_not(None))).mappings().all()
    copies = [
        {**made[number % len(made)], "id": f"{made[number % len(made)]['id']}_{number}"}
        for number in range(len(made), pending)
    ]
    if copies:
        connection.execute(insert(RESERVATION), copies)
