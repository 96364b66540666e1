"""Each service test meets both engines, and leaves a database in which every invariant holds."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.coordinator import database_url, postgres_template, sqlite_template
from tests.support.invariants import check
from tests.support.service_world import World, world_on

__all__ = ["database_url", "postgres_template", "sqlite_template", "world"]


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """A coordinator without any node yet."""
    async with world_on(database_url) as world:
        yield world
        assert await world.coordinator.database.read(check, world.now_ms) == []
