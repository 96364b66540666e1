"""How many repairs stay inside their fabric, where nodes are lost one by one and most fabrics have a spare."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from sqlalchemy import Connection, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Node
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_coordinator.store import read
from muster_coordinator.store.engine import Database
from muster_coordinator.store.tables import NODE
from muster_shared.time import Window
from muster_shared.wire import FABRIC_DOMAIN, Hold, Report
from scripts.bench_pool import HOUR_MS, NOW_MS, book, fill, nodes
from scripts.bench_row import Row
from scripts.bench_rows import Gang
from tests.support.service_world import Coordinator, WorldClock

_DOMAINS: Final = 28
_DOMAIN_NODES: Final = 18  # of a rack of NVL72
_GANG: Final = 4
_LOADS: Final = (2, 3, 4, 4, 4)  # gangs in a fabric, by chance: two spares and more ...
_FULL_EVERY: Final = 7  # ... and none in every seventh: single nodes are booked there, too
_LOSSES: Final = 60
_QUIET_MS: Final = 11 * 60_000  # between losses: each is a fault of its own, no storm
_WINDOW: Final = Window(NOW_MS + 20 * HOUR_MS, NOW_MS + 30 * HOUR_MS)
_DISK: Final = Path(__file__).parents[1] / "build"  # a real disk, where /tmp may be memory


@dataclass(slots=True)
class _Counts:
    repairs: int = 0
    stayed: int = 0
    could: int = 0  # a sound, free node was left in the fabric
    anew: int = 0  # where a plan for the whole gang, wherever it fits best, would have stayed

    def percent(self, count: int) -> float:
        return round(100 * count / self.repairs, 1)


def rows(group: str, progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure; the target is what is possible at all, the baseline what planning the gang anew would do."""
    _DISK.mkdir(exist_ok=True)
    progress(f"{_LOSSES} nodes lost one by one, in {_DOMAINS} fabrics most of which have a spare")
    with tempfile.TemporaryDirectory(dir=_DISK) as folder:
        counts = asyncio.run(_lost(f"sqlite:///{folder}/domains.sqlite"))
    stayed, could, anew = map(counts.percent, (counts.stayed, counts.could, counts.anew))
    yield Row(group, "repair_same_domain_percent", stayed, "% kept", could, anew)


async def _lost(url: str) -> _Counts:
    clock, chance, counts = WorldClock(NOW_MS), Random(5), _Counts()  # noqa: S311 - a scene, no secret
    coordinator = Coordinator(url, clock, "bench", opener=Database)
    pool = nodes(_DOMAINS * _DOMAIN_NODES, 0, domain_nodes=_DOMAIN_NODES)
    gangs = _gangs(pool, chance)
    await coordinator.write(fill, pool)
    await coordinator.write(book, gangs)
    for gang in chance.sample([one for one in gangs if one.domain], _LOSSES):
        clock.ms += _QUIET_MS
        await coordinator.write(_heard)
        counts.repairs += 1
        node = await coordinator.database.read(_foretold, clock.moment(), gang.id, counts)
        await coordinator.take_report(node.id, _loss(node))
        counts.stayed += await coordinator.database.read(_domain_of, gang.id) == node.home_domain
    await coordinator.database.close()
    return counts


def _gangs(pool: list[Node], chance: Random) -> list[Gang]:
    gangs: list[Gang] = []
    for domain in range(_DOMAINS):
        names = [node.id for node in pool[domain * _DOMAIN_NODES : (domain + 1) * _DOMAIN_NODES]]
        is_full = domain % _FULL_EVERY == 0
        for number in range(max(_LOADS) if is_full else chance.choice(_LOADS)):
            chosen = tuple(names[number * _GANG : (number + 1) * _GANG])
            gangs.append(Gang(f"rsv_{domain}_{number}", chosen, 0xFF, _WINDOW, f"fabric-{domain:04}.1"))
        if is_full:
            rest = names[max(_LOADS) * _GANG :]
            gangs += [Gang(f"rsv_single_{name}", (name,), 0xFF, _WINDOW) for name in rest]
    return gangs


def _foretold(connection: Connection, at: Moment, reservation_id: str, counts: _Counts) -> Node:
    """Choose the node that the gang loses, and count what is possible and what a plan for the whole gang would do."""
    (pool_row,) = read.pools(connection)
    found = read.reservation(connection, reservation_id)
    assert found is not None, "it was booked by this scene"
    reservation, _ = found
    pool = read.snapshot(connection, pool_row, at.ms)
    lost = pool.views[at.chance.choice(reservation.members).node_id].node
    free = [
        one.node
        for one in pool.ordered
        if not one.held_mask and not any(Window(b.start_ms, b.end_ms).overlaps(_WINDOW) for b in one.node.booked)
    ]
    counts.could += any(node.home_domain == lost.home_domain for node in free)
    own_free = pool.without(reservation_id, [member.node_id for member in reservation.members])
    answer = plan(own_free, reservation.request(_WINDOW), pool_row.policy, excluded={lost.id})
    counts.anew += isinstance(answer, Plan) and answer.agreed == reservation.agreed
    return lost


def _domain_of(connection: Connection, reservation_id: str) -> str:
    found = read.reservation(connection, reservation_id)
    assert found is not None, "it was booked by this scene"
    return dict(found[0].agreed).get(FABRIC_DOMAIN, "")


def _heard(connection: Connection, at: Moment) -> None:
    connection.execute(update(NODE).values(last_report_ms=at.ms))


def _loss(node: Node) -> Report:
    fault = Hold(device=node.atoms[0].device, cause="xid", code=79, since_ms=NOW_MS, clears_by="nodeRebootVerified")
    return Report(
        boot_id="boot", seq=1, agent_version="1", applied_rev=1, inventory_hash="", holds=[fault], assignments=[]
    )
