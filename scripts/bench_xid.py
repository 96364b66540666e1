"""How soon a booking is repaired: from sending the report of a fatal fault to seeing the booking on other nodes."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp
from sqlalchemy import Connection, select

from muster_coordinator.clock import SystemClock
from muster_coordinator.core.repair.plan import plan_repair
from muster_coordinator.store import read
from muster_coordinator.store.engine import Database
from muster_coordinator.store.tables import RESERVATION
from muster_shared.codec import encode
from muster_shared.time import format_instant
from muster_shared.wire import FABRIC_DOMAIN, Credential, Hold, Registration, Report
from scripts.bench_creates import serving_coordinator
from scripts.bench_pool import HOUR_MS, NOW_MS, fill, nodes
from scripts.bench_row import Row

_NODES: Final = 2_016
_CALENDAR: Final = 20_000  # bookings of everybody else, later
_FAULTS: Final = 15  # one after the other, each in another fabric: fewer than the brake lets move in a minute
_DOMAIN_NODES: Final = 18  # of a rack of NVL72
_GANG: Final = 16  # each takes a fabric of its own, and leaves two spares
_SOON_S: Final = 10  # whoever is not repaired by then is not repaired
_TARGET_S: Final = 1.0
_JSON: Final = {"Content-Type": "application/json"}

_DISK: Final = Path(__file__).parents[1] / "build"  # a real disk, where /tmp may be memory


def rows(group: str, progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure by a real coordinator process. The baseline reads the pool anew, plans, and writes nothing."""
    _DISK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_DISK) as folder:
        progress(f"{_FAULTS} fatal XIDs, reported to a coordinator over HTTP (SQLite, {_NODES:,} nodes)")
        url = f"sqlite:///{folder}/xid.sqlite"
        asyncio.run(_filled(url))
        with serving_coordinator(url) as address:
            taken_s = asyncio.run(_slowest_s(address))
        yield Row(group, "xid_to_repair_s", round(taken_s, 3), "s", _TARGET_S, asyncio.run(_naive_s(url)))


async def _filled(url: str) -> None:
    database = Database(url)
    await database.write(fill, SystemClock().moment(), nodes(_NODES, _CALENDAR, domain_nodes=_DOMAIN_NODES))
    await database.close()


async def _slowest_s(address: str) -> float:
    """Return the longest time that one of the repairs takes, in seconds."""
    body = {
        "tenantId": "bench",
        "devices": [{"count": 8}],
        "gang": {"size": _GANG, "topologyKey": FABRIC_DOMAIN},
        "start": format_instant(SystemClock().moment().ms + HOUR_MS),
        "duration": "2h",
    }
    async with aiohttp.ClientSession(address) as session:
        times: list[float] = []
        for _ in range(_FAULTS):
            async with session.post("/v1/reservations", json=body) as answer:
                made = await answer.json()
            assert made["state"] == "placed", made
            times.append(await _fault_s(session, made["id"], made["members"][0]["nodeId"]))
    return max(times)


async def _fault_s(session: aiohttp.ClientSession, reservation_id: str, node_id: str) -> float:
    number = int(node_id.removeprefix("node_"))
    name, gpu = f"host-{number:05}", f"GPU-{number:05}-0"
    joining = Registration(name=name, machine_id=f"machine-{name}", agent_version="1", gpus=(gpu,))
    async with session.post("/v1/nodes/register", data=encode(joining), headers=_JSON) as answer:
        token = Credential.model_validate_json(await answer.read()).token
    fault = Hold(device=gpu, cause="xid", code=79, since_ms=NOW_MS, clears_by="nodeRebootVerified")
    report = Report(
        boot_id="boot", seq=1, agent_version="1", applied_rev=1, inventory_hash="", holds=[fault], assignments=[]
    )
    headers = {**_JSON, "Authorization": f"Bearer {token}"}
    begun = time.perf_counter()
    async with session.post(f"/v1/nodes/{node_id}/report", data=encode(report), headers=headers) as answer:
        assert answer.status == 200, await answer.text()
    while time.perf_counter() - begun < _SOON_S:
        async with session.get(f"/v1/reservations/{reservation_id}") as answer:
            shown: dict[str, Any] = await answer.json()
        if all(member["nodeId"] != node_id for member in shown["members"]):
            return time.perf_counter() - begun
    raise RuntimeError(f"{reservation_id} was not repaired within {_SOON_S} s")


async def _naive_s(url: str) -> float:
    """Return how long it takes to read the pool and plan one such repair, in seconds."""
    database = Database(url)
    times = [await database.read(_planned_anew) for _ in range(3)]
    await database.close()
    return round(median(times), 3)


def _planned_anew(connection: Connection) -> float:
    (pool_row,) = read.pools(connection)
    wanted = select(RESERVATION.c.id).where(RESERVATION.c.tenant_id == "bench").limit(1)
    found = read.reservation(connection, connection.execute(wanted).scalar_one())
    assert found is not None, "it was made over HTTP"
    reservation, _ = found
    begun = time.perf_counter()
    pool = read.snapshot(connection, pool_row, reservation.start_ms - HOUR_MS)
    plan_repair(
        reservation, frozenset({reservation.members[0].node_id}), pool, reservation.window, pool_row.policy, seed=0
    )
    return time.perf_counter() - begun
