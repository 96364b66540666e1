"""The background pass over every pool: lead, listen for silence, take what is due, try what is pending."""

import structlog

from muster_coordinator.clock import Clock
from muster_coordinator.notifier import Notifier
from muster_coordinator.service import sweep
from muster_coordinator.service.admit import retry
from muster_coordinator.service.advance import advance
from muster_coordinator.service.sweep import Leadership
from muster_coordinator.store import read
from muster_coordinator.store.engine import Database

_log = structlog.get_logger(__name__)


class PoolPass:
    """Runs the pools whose lease this process holds."""

    def __init__(self, database: Database, clock: Clock, notifier: Notifier, holder: str) -> None:
        self._database = database
        self._clock = clock
        self._notifier = notifier
        self._holder = holder
        self._tried: dict[str, int] = {}  # pool -> the version at which all its pending work was last tried

    async def run_once(self) -> None:
        """One pass. What it does not finish, the next one finds again by stored state and clock."""
        for pool_row in await self._database.read(read.pools):
            leadership = await self._database.write(sweep.lead, self._clock.moment(), pool_row.id, self._holder)
            if leadership is not None:
                await self._pass(leadership)

    async def _pass(self, leadership: Leadership) -> None:
        moment = self._clock.moment()
        silent = await self._database.write(sweep.listen, moment, leadership)
        due = await self._database.read(sweep.due, moment, leadership.pool_id)
        for reservation_id in dict.fromkeys([*due, *silent]):
            await self._database.write(sweep.advance_led, self._clock.moment(), leadership, reservation_id)
        await self._try_pending(leadership)

    async def _try_pending(self, leadership: Leadership) -> None:
        pool_row = await self._database.read(read.pool, leadership.pool_id)
        if pool_row is None:
            return
        is_event = self._tried.get(pool_row.id) != pool_row.version
        waiting = await self._database.read(sweep.waiting, self._clock.moment(), leadership.pool_id, is_event=is_event)
        self._tried[pool_row.id] = pool_row.version
        for reservation_id in waiting:
            if await self._database.flow(retry, self._clock.moment(), reservation_id):
                await self._database.write(advance, self._clock.moment(), reservation_id)
                self._notifier.beat()
