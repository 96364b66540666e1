"""Publishes what is committed: gives events their places in the stream, and audited calls theirs in the chain."""

from typing import Final

from muster_coordinator.notifier import Notifier
from muster_coordinator.service.access import audit
from muster_coordinator.service.access.book import AccessBook
from muster_coordinator.store import relay
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
            published = await self._database.write(relay.publish, _BATCH)
            if published:
                self._published.beat()


class AuditRelay:
    """Chains what is committed and not chained, and looks whether another replica has changed what callers may do."""

    def __init__(self, database: Database, book: AccessBook) -> None:
        self._database = database
        self._book = book

    async def run_once(self) -> None:
        """Chain everything that waits."""
        chained = _BATCH
        while chained == _BATCH:
            chained = await self._database.write(audit.chain, _BATCH)
        await self._database.read(self._book.current)
