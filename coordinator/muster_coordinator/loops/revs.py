"""Knows the desired-state revision of every node, so that a thousand long polls cost one query a change."""

import asyncio
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from muster_coordinator.store.engine import Database
from muster_coordinator.store.tables import NODE


@dataclass(eq=False, slots=True)
class _Waiter:
    node_id: str
    above: int
    risen: asyncio.Event = field(default_factory=asyncio.Event)


class Revs:
    """What long polls wait on."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._revs: dict[str, int] = {}
        self._waiters: set[_Waiter] = set()

    async def run_once(self) -> None:
        """Look at every revision once and wake the polls of those that rose."""
        self._revs = await self._database.read(_all_revs)
        for waiter in self._waiters:
            if self._revs.get(waiter.node_id, 0) > waiter.above:
                waiter.risen.set()

    async def wait_above(self, node_id: str, rev: int, timeout_s: float) -> bool:
        """Return True once the node's revision is above `rev`, False after `timeout_s`."""
        if self._revs.get(node_id, 0) > rev:
            return True
        waiter = _Waiter(node_id, rev)
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter.risen.wait()
        except TimeoutError:
            return False
        else:
            return True
        finally:
            self._waiters.discard(waiter)


def _all_revs(connection: Connection) -> dict[str, int]:
    return {row.id: row.rev for row in connection.execute(select(NODE.c.id, NODE.c.rev))}
