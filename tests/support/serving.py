"""A real server on loopback for operations of a test's own, where the token names the role."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog
from aiohttp import ClientSession, web

from muster_coordinator.api.operation import Operation
from muster_coordinator.api.server import build_app, runner_of
from muster_coordinator.metrics import Counts
from muster_coordinator.service.access.book import AccessBook
from muster_coordinator.service.access.caller import Caller
from muster_coordinator.service.access.guard import Guard
from muster_shared.errors import Code, Problem


@asynccontextmanager
async def door(
    operation: Operation, token: str | None, _path: Mapping[str, str], _request: web.Request
) -> AsyncIterator[Guard]:
    if operation.audience != "public" and token is None:
        raise Problem(Code.UNAUTHENTICATED, "Send a token")
    if operation.audience not in {"public", token}:
        raise Problem(Code.FORBIDDEN, "Not yours")
    caller = Caller("User", "somebody", operation.audience, (operation.audience,))
    yield Guard(caller, AccessBook(), operation.action, at_ms=0)


@asynccontextmanager
async def served(
    operations: Sequence[Operation], *, services: object = None, token: str | None = "tenant"
) -> AsyncIterator[ClientSession]:
    """Serve until the block ends; the client is still connected while the server stops."""
    runner = runner_of(build_app(operations, lambda _: services, door, structlog.get_logger(), Counts()))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with ClientSession(f"http://{host}:{port}", headers=headers) as client:
        try:
            yield client
        finally:
            await runner.cleanup()
