"""A real server on loopback for operations of a test's own, where the token names the role."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog
from aiohttp import ClientSession, web

from muster_coordinator.api.operation import Operation, Principal
from muster_coordinator.api.server import build_app, runner_of
from muster_coordinator.metrics import Counts
from muster_shared.errors import Code, Problem


async def authorize(operation: Operation, token: str | None, _path: Mapping[str, str]) -> Principal:
    if operation.audience == "public":
        return Principal("public")
    if token is None:
        raise Problem(Code.UNAUTHENTICATED, "Send a token")
    if token != operation.audience:
        raise Problem(Code.FORBIDDEN, "Not yours")
    return Principal(operation.audience)


@asynccontextmanager
async def served(
    operations: Sequence[Operation], *, services: object = None, token: str | None = "tenant"
) -> AsyncIterator[ClientSession]:
    """Serve until the block ends; the client is still connected while the server stops."""
    runner = runner_of(build_app(operations, services, authorize, structlog.get_logger(), Counts()))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with ClientSession(f"http://{host}:{port}", headers=headers) as client:
        try:
            yield client
        finally:
            await runner.cleanup()
