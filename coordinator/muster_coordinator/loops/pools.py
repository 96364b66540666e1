"""The background pass over every pool: lead, listen for silence, take what is due, try what is pending."""

import structlog
from sqlalchemy.exc import DBAPIError

from muster_coordinator.clock import Clock
from muster_coordinator.notifier import Notifier
from muster_coordinator.service import sweep
from muster_coordinator.service.admit import retry
from muster_coordinator.service.advance import advance
from muster_coordinator.service.sweep import Agenda, FencedError, Leadership
from muster_coordinator.store.engine import Database

_log = structlog.get_logger(__name__)


class PoolPass:
    """Runs the pools whose lease this process holds."""

    def __init__(self, database: Database, clock: Clock, notifier: Notifier, holder: str) -> None:
        self._database = database
        self._clock = clock
        self._notifier = notifier
        self._name = holder
        self._holder = holder
        self._lives = 1
        self._tried: dict[str, int] = {}  # pool -> the version at which all its pending work was last tried

    def begin_anew(self) -> None:
        """Lead under another name from now on: this process was away for longer than its lease.

        The next pass begins a new epoch, so that silence and bind times are not counted while nobody listened.
        """
        self._lives += 1
        self._holder = f"{self._name}#{self._lives}"

    async def run_once(self) -> None:
        """One pass. What it does not finish, the next one finds again by stored state and clock."""
        for agenda in await self._database.read(sweep.agendas, self._clock.moment(), self._holder):
            if await self._run(agenda):
                self._notifier.beat()

    async def _run(self, agenda: Agenda) -> bool:
        """Do what one pool needs; return whether anything changed."""
        pool_id = agenda.pool_row.id
        leadership = agenda.leadership
        if leadership is None:
            leadership = await self._database.write(sweep.lead, self._clock.moment(), pool_id, self._holder)
        if leadership is None:
            return False
        silent: tuple[str, ...] = ()
        if agenda.is_silence_due:
            silent = await self._database.write(sweep.listen, self._clock.moment(), leadership)
        moved = agenda.is_silence_due
        for reservation_id in dict.fromkeys([*agenda.due, *silent]):
            moved |= await self._advance(leadership, reservation_id)
        return await self._try_pending(agenda) or moved

    async def _advance(self, leadership: Leadership, reservation_id: str) -> bool:
        try:
            return await self._database.write(sweep.advance_led, self._clock.moment(), leadership, reservation_id)
        except (FencedError, DBAPIError, OSError):
            raise
        except Exception:  # noqa: BLE001 - a bug that one reservation meets must not stop the starts of all others
            _log.exception("reservation does not advance", reservation=reservation_id)
            return False

    async def _try_pending(self, agenda: Agenda) -> bool:
        pool_id, version = agenda.pool_row.id, agenda.pool_row.version
        is_event = self._tried.get(pool_id) != version
        waiting = await self._database.read(sweep.waiting, self._clock.moment(), pool_id, is_event=is_event)
        self._tried[pool_id] = version
        moved = False
        for reservation_id in waiting:
            if await self._database.flow(retry, self._clock.moment(), reservation_id):
                await self._database.write(advance, self._clock.moment(), reservation_id)
                moved = True
        return moved
