"""A receiver of webhooks on loopback that checks what it gets with the reference library, and answers as told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Got:
    """One request that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


@dataclass
class Receiver:
    """Takes everything with 204, unless told otherwise."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    status: int = 204
    refuses: set[str] = field(default_factory=set)  # subjects whose events it answers with 500
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    at_once_max: int = 0
    _now: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: web.Request) -> web.Response:
        self._now += 1
        self.at_once_max = max(self.at_once_max, self._now)
        try:
            headers = {name.lower(): value for name, value in request.headers.items()}
            got = Got(request.path, headers, await request.read())
            async with self.arrived:
                self.got.append(got)
                self.arrived.notify_all()
            await self.gate.wait()
            status = 500 if got.event["subject"] in self.refuses else self.status
            return web.Response(status=status, headers=self.headers, body=self.body)
        finally:
            self._now -= 1

    async def until(self, count: int) -> None:
        """Wait until so many have arrived."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.got) >= count)

    @property
    def seqs(self) -> list[int]:
        return [one.event["seq"] for one in self.got]


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Serve until the block ends."""
    receiver = Receiver()
    receiver.gate.set()
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        receiver.gate.set()
        await runner.cleanup()
