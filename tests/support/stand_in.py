"""A coordinator's three node calls, on a real port, played by the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from muster_shared.codec import decode, encode
from muster_shared.wire import Assignment, Credential, DesiredState, Registration, Report, ReportAnswer

HEARTBEAT_MS = 100


def problem(status: int, code: str, detail: str, **headers: str) -> web.Response:
    return web.json_response(
        {"status": status, "code": code, "detail": detail},
        status=status,
        content_type="application/problem+json",
        headers=headers,
    )


@dataclass
class StandIn:
    """Answers like a coordinator, and does what the test puts into `instead` once each."""

    registrations: list[Registration] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    rev: int = 1
    token: str = "token-1"
    node_id: str = "node_1"
    cluster_id: str = "cluster_1"
    instead: dict[str, list[Callable[[], web.StreamResponse]]] = field(default_factory=dict)
    seen: list[web.BaseRequest] = field(default_factory=list)
    known_hash: str | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def want(self, *assignments: Assignment) -> None:
        """Make a new desired state."""
        self.assignments = list(assignments)
        self.rev += 1

    async def until(self, told: Callable[[Report], bool], timeout_s: float = 20) -> Report:
        """Wait for a report, from now on, of which `told` is true."""
        first = len(self.reports)
        async with asyncio.timeout(timeout_s), self.changed:
            while True:
                for report in self.reports[first:]:
                    if told(report):
                        return report
                first = len(self.reports)
                await self.changed.wait()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/nodes/register", self._register)
        app.router.add_post("/v1/nodes/{node}/report", self._report)
        app.router.add_get("/v1/nodes/{node}/desired", self._desired)
        return app

    def _override(self, name: str, request: web.BaseRequest) -> web.StreamResponse | None:
        self.seen.append(request)
        waiting = self.instead.get(name)
        return waiting.pop(0)() if waiting else None

    def _stranger(self, request: web.Request) -> web.Response | None:
        if request.match_info["node"] != self.node_id:
            return problem(404, "NOT_FOUND", "no such node")
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return problem(401, "UNAUTHENTICATED", "unknown token")
        return None

    async def _register(self, request: web.Request) -> web.StreamResponse:
        self.registrations.append(decode(Registration, await request.read()))
        if answer := self._override("register", request):
            return answer
        credential = Credential(
            cluster_id=self.cluster_id, node_id=self.node_id, token=self.token, heartbeat_ms=HEARTBEAT_MS
        )
        return web.Response(body=encode(credential), content_type="application/json", status=201)

    async def _report(self, request: web.Request) -> web.StreamResponse:
        report = decode(Report, await request.read())
        if answer := self._override("report", request) or self._stranger(request):
            return answer
        if report.inventory:
            self.known_hash = report.inventory_hash
        async with self.changed:
            self.reports.append(report)
            self.changed.notify_all()
        told = ReportAnswer(
            accepted=True,
            now_ms=1,
            heartbeat_ms=HEARTBEAT_MS,
            want_inventory=report.inventory_hash != self.known_hash,
        )
        return web.Response(body=encode(told), content_type="application/json")

    async def _desired(self, request: web.Request) -> web.StreamResponse:
        if answer := self._override("desired", request) or self._stranger(request):
            return answer
        if int(request.query["rev"]) >= self.rev:
            return web.Response(status=304)  # a real one would wait; the agent must not spin on one that does not
        state = DesiredState(
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            epoch=1,
            rev=self.rev,
            now_ms=1_800_000_000_000,
            assignments=self.assignments,
        )
        return web.Response(body=encode(state), content_type="application/json")


@asynccontextmanager
async def serving(stand_in: StandIn) -> AsyncIterator[str]:
    """Serve it on a free loopback port; give its URL."""
    runner = web.AppRunner(stand_in.app(), shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
