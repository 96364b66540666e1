"""Publishes committed events: gives each its place in the stream."""

from typing import Final

from muster_coordinator.notifier import Notifier
from muster_coordinator.store import commit
from muster_coordinator.store.engine import Database

_BATCH: Final = 500  # events in one transaction: a storm's worth, and still far below a second


class Relay:
    """Numbers what is committed and not numbered."""

    def __init__(self, database: Database, published: Notifier) -> None:
        self._database = database
        self._published = published

    async def run_once(self) -> None:
        """Number everything that waits."""
        published = _BATCH
        while published == _BATCH:
            published = await self._database.write(commit.publish, _BATCH)
            if published:
                self._published.beat()
