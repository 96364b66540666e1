"""The whole coordinator on loopback, on each engine."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.coordinator import database_url, postgres_template, sqlite_template
from tests.support.coordinator_api import Api, api_on

__all__ = ["api", "database_url", "postgres_template", "sqlite_template"]


@pytest_asyncio.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    """A coordinator without any node yet; whoever is on loopback may call it."""
    scheme, _, rest = database_url.partition("://")
    async with api_on(rest[1:] if "sqlite" in scheme else f"postgresql://{rest}") as api:
        yield api
