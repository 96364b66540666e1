"""What every handler works with, and the few things they all do around a service call."""

from collections.abc import Iterable
from dataclasses import dataclass

from muster_coordinator.clock import Clock
from muster_coordinator.loops.revs import Revs
from muster_coordinator.notifier import Notifier
from muster_coordinator.service.advance import advance
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.store.engine import Database


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the running coordinator that the API needs."""

    database: Database
    clock: Clock
    changed: Notifier  # something was committed that somebody may have to act on; it is recorded, too
    recorded: Notifier  # an event was committed
    published: Notifier  # an event got its number
    revs: Revs
    index: PoolIndex
    join_token: str | None  # what a host must show to join; None where anybody on loopback may

    async def advance_all(self, reservation_ids: Iterable[str]) -> None:
        """Carry reservations on after a change, each in its own transaction; the next pass does what is missed."""
        for reservation_id in reservation_ids:
            await self.database.write(advance, self.clock.moment(), reservation_id, self.index)
        self.changed.beat()
