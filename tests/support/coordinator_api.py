"""The whole coordinator on loopback, with its loops, on a clock that stands still."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession
from sqlalchemy import create_engine

from muster_coordinator.app import running
from muster_coordinator.config import Config
from muster_coordinator.store.engine import prepared
from muster_shared.codec import encode
from muster_shared.wire import Credential, DesiredState, Registration, Report, ReportAnswer
from tests.support.coordinator import Rows, opened, rows
from tests.support.coordinator_agent import ScriptedAgent, inventory_of
from tests.support.service_world import WorldClock

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Api:
    """A coordinator that serves, and a client of it."""

    url: str
    client: ClientSession
    clock: WorldClock
    look: Callable[[], Awaitable[Rows]]  # by a door of the test's own, to see what is stored
    tokens: dict[str, str] = field(default_factory=dict)  # node -> its credential

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Call and read the JSON that answers."""
        kind = JSON if isinstance(body, bytes) else {}
        sent = {"data": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
        async with self.client.request(method, path, headers={**kind, **headers}, **sent) as answer:
            return answer.status, await answer.json(content_type=None)

    async def rows(self) -> Rows:
        """Return everything that is stored, leases, sequence numbers and the audit log apart: the loops run."""
        found = await self.look()
        found.pop("lease")
        found.pop("audit")  # a refusal stands there, and changes nothing else
        # The relay numbers events in its own time: the number is no part of what was stored.
        found["event"] = [(*row[:2], *row[3:]) for row in found["event"]]
        return found

    async def join(self, name: str, **script: Any) -> ScriptedAgent:
        """Let a node register and report over HTTP."""
        shown = inventory_of(name, script.get("gpus", 8), None).gpus
        registration = Registration(
            name=name, machine_id=f"machine-{name}", agent_version="1", gpus=tuple(gpu.uuid for gpu in shown)
        )
        async with self.client.post("/v1/nodes/register", data=encode(registration), headers=JSON) as answer:
            credential = Credential.model_validate_json(await answer.read())
        self.tokens[credential.node_id] = credential.token
        agent = ScriptedAgent(name, credential.node_id, self, **script)
        await agent.turn()
        return agent

    def credential(self, node_id: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[node_id]}"}

    async def rev_of(self, node_id: str) -> int:
        return (await self.desired_of(node_id)).rev

    async def desired_of(self, node_id: str) -> DesiredState:
        async with self.client.get(f"/v1/nodes/{node_id}/desired", headers=self.credential(node_id)) as answer:
            return DesiredState.model_validate_json(await answer.read())

    async def take_report(self, node_id: str, report: Report) -> ReportAnswer:
        headers = {**JSON, **self.credential(node_id)}
        async with self.client.post(f"/v1/nodes/{node_id}/report", data=encode(report), headers=headers) as answer:
            return ReportAnswer.model_validate_json(await answer.read())


@asynccontextmanager
async def api_on(database: str, **settings: Any) -> AsyncIterator[Api]:
    """Serve on a free port until the block ends.

    Args:
        database: `postgresql://...`; any other text is the path of a SQLite file.
        **settings: Of `Config`.
    """
    clock = WorldClock()
    config = Config(database=database, listen_port=0, **settings)
    async with (
        running(config, clock) as coordinator,
        ClientSession(coordinator.url) as client,
        _looking(config.database_url) as look,
    ):
        yield Api(coordinator.url, client, clock, look)


@asynccontextmanager
async def _looking(url: str) -> AsyncIterator[Callable[[], Awaitable[Rows]]]:
    if not url.startswith("sqlite"):
        async with opened(url) as database:
            yield lambda: database.read(rows)
        return
    # A second `Database` on a SQLite file would be refused; this one may only read.
    engine = prepared(create_engine(url), read_only=True)

    async def look() -> Rows:
        with engine.begin() as connection:
            return rows(connection)

    yield look
    engine.dispose()
