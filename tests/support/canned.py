"""A coordinator on loopback that answers fixed documents, and the real `muster` command run against it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from click.testing import CliRunner, Result

from muster_cli.main import cli

NOW = "Mon, 28 Sep 2026 08:00:00 GMT"
NOW_MS = 1_790_582_400_000
HOUR_MS = 3_600_000


class StillClock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.interrupts: int | None = None  # the sleep in which somebody presses Ctrl-C, the first is 0

    def monotonic_s(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        if len(self.slept) == self.interrupts:
            raise KeyboardInterrupt
        self.slept.append(seconds)


@dataclass(frozen=True)
class Asked:
    """One request that arrived."""

    call: str  # `POST /v1/reservations?x=1`
    body: Any
    headers: dict[str, str]


@dataclass
class Coordinator:
    """Answers each call with the next of its canned answers; the last one stays."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    clock: StillClock = field(default_factory=StillClock)
    _answers: dict[str, list[tuple[int, bytes, dict[str, str]]]] = field(default_factory=dict)
    _pages: dict[str, Callable[[Mapping[str, str]], object]] = field(default_factory=dict)

    def answer(self, call: str, document: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Answer `GET /v1/x` with a document, or with bytes as they are."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        kind = "application/problem+json" if status >= 400 else "application/json"
        self._answers.setdefault(call, []).append(
            (status, body, {"Content-Type": kind, "Date": NOW, **(headers or {})})
        )

    def refuse(self, call: str, status: int, code: str, detail: str, errors: tuple[tuple[str, str], ...] = ()) -> None:
        """Answer with a problem document."""
        views = [{"path": path, "message": message} for path, message in errors]
        problem = {"status": status, "code": code, "detail": detail, "errors": views, "requestId": "req-1"}
        self.answer(call, problem, status)

    def page(self, call: str, find: Callable[[Mapping[str, str]], object]) -> None:
        """Answer a call that has a limit with what `find` makes of its query."""
        self._pages[call] = find

    async def muster(self, *args: str, **env: str) -> Result:
        """Run the command; what it prints is no terminal's."""
        runner = CliRunner(env={"MUSTER_URL": self.url, "MUSTER_TOKEN": None, "MUSTER_TENANT": None, **env})
        return await asyncio.to_thread(runner.invoke, cli, args, obj=self.clock, prog_name="muster")

    async def serve(self, request: web.Request) -> web.Response:
        """Take one request down, and answer it."""
        content = await request.read()
        self.asked.append(
            Asked(f"{request.method} {request.path_qs}", json.loads(content or b"null"), dict(request.headers))
        )
        call = f"{request.method} {request.path}"
        if call in self._pages and "limit" in request.query:
            return web.json_response(self._pages[call](request.query))
        answers = self._answers[call]
        status, body, headers = answers.pop(0) if len(answers) > 1 else answers[0]
        return web.Response(status=status, body=body, headers=headers)


@asynccontextmanager
async def coordinator_running() -> AsyncIterator[Coordinator]:
    """Serve until the block ends."""
    coordinator = Coordinator()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", coordinator.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    coordinator.url = f"http://{host}:{port}"
    try:
        yield coordinator
    finally:
        await runner.cleanup()


def reservation(**changed: object) -> dict[str, Any]:
    """A placed gang of two nodes that starts in three hours; fields that are given replace or add."""
    return {
        "id": "rsv_1",
        "tenantId": "acme",
        "poolId": "pool_1",
        "state": "placed",
        "atRisk": [],
        "start": NOW_MS + 3 * HOUR_MS,
        "end": NOW_MS + 15 * HOUR_MS,
        "duration": 12 * HOUR_MS,
        "devices": [{"class": "gpu", "count": 8, "topology": "any"}],
        "gang": {"size": 2, "topologyKey": "fabric.domain"},
        "topologyValue": "f00d.1",
        "generation": 1,
        "version": 3,
        "created": NOW_MS,
        "members": [member("gpu-02"), member("gpu-01")],
        **changed,
    }


def member(name: str, **changed: object) -> dict[str, Any]:
    """One member with two devices."""
    devices = [f"GPU-{name}-a", f"GPU-{name}-b"]
    booked = {"allocationId": f"alc_{name}", "bindState": "reserved"}
    return {"nodeId": f"node_{name}", "nodeName": name, "devices": devices, **booked, **changed}


def pending(**changed: object) -> dict[str, Any]:
    """A reservation for which nothing fits."""
    condition = {
        "type": "Unschedulable",
        "reason": "doesNotFit",
        "message": "no gang of 2 nodes fits in one fabric.domain (at most 1 node fits together)",
        "blockers": [
            {"reason": "booked", "nodes": 3, "until": NOW_MS + 5 * HOUR_MS},
            {"reason": "cordoned", "nodes": 1},
        ],
    }
    placed: dict[str, object] = {"members": [], "topologyValue": None}
    return reservation(**{"id": "rsv_2", "state": "pending", "condition": condition, **placed, **changed})


def node(**changed: object) -> dict[str, Any]:
    """A node in use, in good health."""
    gpu = {"uuid": "GPU-0001", "pci": "0000:0f:00", "model": "NVIDIA H100", "memoryMib": 81920}
    return {
        "id": "node_1",
        "name": "gpu-01",
        "poolId": "pool_1",
        "labels": {"fabric.domain": "f00d.1", "rack": "r7"},
        "operatorLabels": {"rack": "r7"},
        "reachable": True,
        "intent": "schedulable",
        "leased": False,
        "lastReport": NOW_MS - 4_000,
        "agentVersion": "0.1.0",
        "gpus": [gpu],
        "holds": [],
        "gpusTotal": 8,
        "gpusFree": 6,
        "rev": 4,
        "appliedRev": 4,
        **changed,
    }


def pool(**changed: object) -> dict[str, Any]:
    """A pool of two fabrics."""
    return {
        "id": "pool_1",
        "name": "default",
        "policy": {"topN": 1, "turnaround": 0},
        "nodes": 4,
        "total": 32,
        "allocatable": 31,
        "reserved": 16,
        "active": 8,
        "free": 15,
        "held": {"xid": 1},
        "largestGang": {"f00d.1": 2, "f00d.2": 1},
        "asOf": NOW_MS,
        **changed,
    }


def event(seq: int, **changed: object) -> dict[str, Any]:
    """One event about the reservation."""
    return {
        "id": f"evt_{seq}",
        "seq": seq,
        "type": "reservation.placed",
        "at": NOW_MS - 60_000,
        "poolId": "pool_1",
        "subject": "rsv_1",
        "version": 2,
        "data": {"nodeIds": ["node_1", "node_2"]},
        **changed,
    }
