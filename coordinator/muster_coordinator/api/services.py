"""What every handler works with, and the few things they all do around a service call."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from muster_coordinator.api.exposition import Exposition
from muster_coordinator.api.turns import Turns
from muster_coordinator.clock import Clock
from muster_coordinator.core.webhook.targets import Allowed
from muster_coordinator.loops.post import Post
from muster_coordinator.loops.revs import Revs
from muster_coordinator.metrics import Counts
from muster_coordinator.notifier import Notifier
from muster_coordinator.service.access.book import AccessBook
from muster_coordinator.service.access.guard import Guard
from muster_coordinator.service.admit import Admitted
from muster_coordinator.service.advance import advance_batch, batches
from muster_coordinator.service.bodies import ReservationView
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.together import Asking
from muster_coordinator.store.engine import Database
from muster_coordinator.store.read import soonest_first


@dataclass(frozen=True, slots=True)
class Made:
    """A reservation that was taken in, and how it looks; no view where a step of its life is due first."""

    admitted: Admitted
    view: ReservationView | None


@dataclass(slots=True)
class Heard:
    """Reservations that reports concern and that nobody has looked at yet."""

    reservation_ids: set[str] = field(default_factory=set[str])
    is_taken: bool = False  # somebody is at it, and takes what comes in meanwhile


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
    turns: Turns[Asking, Made | Exception]
    join_token: str | None  # what a host must show to join; None where anybody on loopback may
    counts: Counts = field(default_factory=Counts)
    exposition: Exposition = field(default_factory=Exposition)
    post: Post = field(default_factory=lambda: Post(Allowed()))
    heard: Heard = field(default_factory=Heard)
    book: AccessBook = field(default_factory=AccessBook)
    has_root: bool = False  # the configuration has a token for operators

    def acting_for(self, guard: Guard) -> "Services":
        """Return the same parts for one call: what it writes stands in the audit log, in the same transaction."""
        return replace(self, database=self.database.watched(guard))

    async def advance_all(self, reservation_ids: Iterable[str]) -> None:
        """Carry reservations on after a change, in batches; the next pass does what is missed."""
        for batch in await self.database.read(batches, tuple(reservation_ids)):
            await self.database.write(advance_batch, self.clock.moment(), batch, self.index)
        self.changed.beat()

    async def advance_heard(self, reservation_ids: Iterable[str]) -> None:
        """Carry on what a report concerns, together with what other reports bring in meanwhile: soonest start first.

        When a rack fails, its nodes report within a second: their bookings are one batch, in the order of the starts.
        """
        heard = self.heard
        heard.reservation_ids.update(reservation_ids)
        if heard.is_taken:
            return
        heard.is_taken = True
        try:
            while heard.reservation_ids:
                taken, heard.reservation_ids = heard.reservation_ids, set()
                await self.advance_all(await self.database.read(soonest_first, taken))
        finally:
            heard.is_taken = False
