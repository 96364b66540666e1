"""A coordinator that was away: its own absence is nobody's silence, from its first answer on."""

from pathlib import Path

from aiohttp import ClientSession

from muster_coordinator.app import running
from muster_coordinator.config import Config
from tests.support.coordinator_api import api_on
from tests.support.service_world import HOUR, WorldClock

ONE = {"tenantId": "acme", "devices": [{"count": 8}], "duration": "1h"}


async def test_the_first_call_after_an_hour_without_a_coordinator_finds_the_nodes(tmp_path: Path) -> None:
    path = str(tmp_path / "muster.db")
    async with api_on(path) as api:
        await api.join("a1")
    clock = WorldClock()
    clock.ms += HOUR

    async with (
        running(Config(database=path, listen_port=0), clock) as coordinator,
        ClientSession(coordinator.url) as client,
        client.post("/v1/reservations", json=ONE) as answer,
    ):
        made = await answer.json()

    assert made["state"] == "binding", made
