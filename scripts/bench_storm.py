"""A storm: 64 of 2,016 nodes report a fatal fault within a moment, just as their 200 bookings begin."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, func, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Entry, Node, Shape
from muster_coordinator.core.repair.plan import plan_repair
from muster_coordinator.store import read
from muster_coordinator.store.engine import Database
from muster_coordinator.store.tables import ALLOCATION, EVENT, NODE, RESERVATION
from muster_shared.time import Window
from muster_shared.wire import FABRIC_DOMAIN, Hold, Report
from scripts.bench_pool import HOUR_MS, NOW_MS, book, fill, nodes
from scripts.bench_row import Row
from scripts.bench_rows import Gang
from tests.support.service_world import Coordinator, WorldClock

_NODES: Final = 2_016
_CALENDAR: Final = 20_000  # bookings of everybody else
_DOMAIN_NODES: Final = 18  # of a rack of NVL72
_FALLEN_DOMAINS: Final = 16
_FALLEN_EACH: Final = 4  # of a domain: it is falling, and its bookings move only close to their start
_BOOKINGS: Final = 200
_PAIRS: Final = 56  # gangs of two among them, of one fabric
_QUARTERS: Final = (0b11, 0b1100, 0b11_0000, 0b1100_0000)  # of a node: four bookings fill it
_START_MS: Final = NOW_MS - HOUR_MS // 6  # before the shifts begin: nothing else does meanwhile
_WINDOW: Final = Window(_START_MS, _START_MS + 2 * HOUR_MS)
_TARGET_S: Final = 5.0
_PASSES_MAX: Final = 4  # after the reports; one that changes nothing is the last
_SAMPLE: Final = 2  # bookings that are planned the obvious way; it takes as long for each
_DISK: Final = Path(__file__).parents[1] / "build"  # a real disk, where /tmp may be memory


def rows(group: str, progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure from the first report until every booking is decided and committed.

    They begin now, when the brake holds back nothing: before, it would let 21 of them move in two minutes. The baseline
    reads the pool anew for each of them, plans, and writes nothing.
    """
    _DISK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_DISK) as folder:
        progress(f"{_FALLEN_DOMAINS * _FALLEN_EACH} of {_NODES:,} nodes fail under {_BOOKINGS} bookings (SQLite)")
        taken_s, naive_s, moved, held = asyncio.run(_storm(f"sqlite:///{folder}/storm.sqlite"))
    progress(f"{moved} bookings were moved, {held} wait where they were")
    yield Row(group, "storm_64n_s", taken_s, "s", _TARGET_S, naive_s)


async def _storm(url: str) -> tuple[float, float, int, int]:
    """Return how long it took, how long the obvious way takes, s, and how many were moved, and were not."""
    clock = WorldClock(NOW_MS - HOUR_MS)
    coordinator = Coordinator(url, clock, "bench", opener=Database)
    pool, gangs = _scene()
    await coordinator.write(fill, pool)
    await coordinator.write(book, gangs)
    await coordinator.passes.run_once()  # who leads, and what the pool is like, is known before
    fallen = [node for node in pool if not node.booked]
    clock.ms = _START_MS
    await coordinator.write(_heard)
    naive_s = await coordinator.database.read(_planned_naively, [gang.id for gang in gangs[:: _BOOKINGS // _SAMPLE]])
    begun = time.perf_counter()
    await asyncio.gather(*(coordinator.take_report(node.id, _fault(node)) for node in fallen))
    for _ in range(_PASSES_MAX):
        before = await coordinator.database.read(_events)
        await coordinator.passes.run_once()
        if await coordinator.database.read(_events) == before:
            break
    taken_s = round(time.perf_counter() - begun, 3)
    moved, held = await coordinator.database.read(_moved, [node.id for node in fallen])
    await coordinator.database.close()
    return taken_s, round(naive_s * _BOOKINGS, 3), moved, held


def _scene() -> tuple[list[Node], list[Gang]]:
    """Return a busy pool, and what begins soon on the nodes that fall: they have nothing else."""
    pool = nodes(_NODES, _CALENDAR, domain_nodes=_DOMAIN_NODES)
    step = _NODES // _DOMAIN_NODES // _FALLEN_DOMAINS
    chosen = [
        number * step * _DOMAIN_NODES + place for number in range(_FALLEN_DOMAINS) for place in range(_FALLEN_EACH)
    ]
    for number in chosen:
        pool[number] = replace(pool[number], booked=())
    gangs: list[Gang] = []
    for at, mask in enumerate(_QUARTERS):
        for number, other in zip(chosen[::2], chosen[1::2], strict=True):
            pair = (pool[number].id, pool[other].id)
            together = len(gangs) < _PAIRS
            for node_ids in (pair,) if together else ((pair[0],), (pair[1],)):
                domain = pool[number].labels[FABRIC_DOMAIN] if together else ""
                gangs.append(
                    Gang(f"rsv_{at}_{node_ids[0]}", node_ids, mask, _WINDOW, domain, shape=Shape((Entry("gpu", 2),)))
                )
    assert len(gangs) == _BOOKINGS
    return pool, gangs


def _heard(connection: Connection, at: Moment) -> None:
    connection.execute(update(NODE).values(last_report_ms=at.ms))


def _fault(node: Node) -> Report:
    holds = [
        Hold(device=atom.device, cause="xid", code=79, since_ms=_START_MS, clears_by="nodeRebootVerified")
        for atom in node.atoms
    ]
    return Report(
        boot_id="boot", seq=1, agent_version="1", applied_rev=1, inventory_hash="", holds=holds, assignments=[]
    )


def _planned_naively(connection: Connection, reservation_ids: list[str]) -> float:
    """Return how long it takes to read the pool and plan the repair of one booking, in seconds."""
    (pool_row,) = read.pools(connection)
    begun = time.perf_counter()
    for reservation_id in reservation_ids:
        found = read.reservation(connection, reservation_id)
        assert found is not None
        reservation, _ = found
        pool = read.snapshot(connection, pool_row, _START_MS)
        bad = frozenset(member.node_id for member in reservation.members)
        plan_repair(reservation, bad, pool, reservation.window, pool_row.policy, seed=0)
    return (time.perf_counter() - begun) / len(reservation_ids)


def _events(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(EVENT)).scalar_one()


def _moved(connection: Connection, fallen: list[str]) -> tuple[int, int]:
    repaired = select(func.count(EVENT.c.subject.distinct())).where(EVENT.c.type == "reservation.repaired")
    on_fallen = select(ALLOCATION.c.reservation_id).where(ALLOCATION.c.live, ALLOCATION.c.node_id.in_(fallen))
    held = select(func.count()).select_from(RESERVATION).where(RESERVATION.c.id.in_(on_fallen))
    return connection.execute(repaired).scalar_one(), connection.execute(held).scalar_one()
