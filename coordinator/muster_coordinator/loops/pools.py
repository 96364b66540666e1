"""The background pass over every pool: lead, listen for silence, take what is due, try what is pending."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import structlog
from sqlalchemy.exc import DBAPIError

from muster_coordinator.clock import Clock
from muster_coordinator.notifier import Notifier
from muster_coordinator.service import sweep, waiting
from muster_coordinator.service.advance import advance, cut
from muster_coordinator.service.again import retry_first
from muster_coordinator.service.bodies import Condition
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.series.ahead import make_next
from muster_coordinator.service.sweep import Agenda, FencedError, Leadership
from muster_coordinator.store.engine import Database

_RECONCILE_MS: Final = 600_000  # it costs a look at all that ever was

_log = structlog.get_logger(__name__)

_MADE_MAX: Final = 16  # occurrences of a series in one round: starts and ends are looked at in between


class PoolPass:
    """Runs the pools whose lease this process holds."""

    def __init__(self, database: Database, clock: Clock, notifier: Notifier, index: PoolIndex, holder: str) -> None:
        self._database = database
        self._clock = clock
        self._notifier = notifier
        self._index = index
        self._name = holder
        self._holder = holder
        self._lives = 1
        self._reconciled_ms: dict[str, int] = {}  # pool -> when what is left of nobody was last looked for
        self._tried: dict[str, _Tried] = {}  # pool -> when all its pending work was last tried

    def begin_anew(self) -> None:
        """Lead under another name from now on: this process was away for longer than its lease.

        The next pass begins a new epoch, so that silence and bind times are not counted while nobody listened.
        """
        self._lives += 1
        self._holder = f"{self._name}#{self._lives}"

    async def lead(self) -> None:
        """Lead every pool that nobody leads: before anybody asks, or the time without a leader looks like silence."""
        for agenda in await self._database.read(sweep.agendas, self._clock.moment(), self._holder, self._index):
            await self._database.write(sweep.lead, self._clock.moment(), agenda.pool_row.id, self._holder)

    async def run_once(self) -> None:
        """One pass. What it does not finish, the next one finds again by stored state and clock."""
        for agenda in await self._database.read(sweep.agendas, self._clock.moment(), self._holder, self._index):
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
        touched, moved = await self._look_around(agenda, leadership)
        moved |= await self._advance_all(leadership, [*agenda.due, *touched])
        for maintenance_id in agenda.maintenance:
            moved = True
            await self._advance_all(leadership, await self._settle(leadership, maintenance_id))
        for series_id in agenda.series:
            moved |= await self._make_ahead(series_id)
        return await self._try_pending(agenda) or moved

    async def _look_around(self, agenda: Agenda, leadership: Leadership) -> tuple[tuple[str, ...], bool]:
        """See what has happened to nodes; return the reservations to look at now, and whether anything changed."""
        touched: tuple[str, ...] = ()
        if agenda.is_storm_due:
            touched += await self._database.write(sweep.judge, self._clock.moment(), leadership, self._index)
        if agenda.is_silence_due:
            touched += await self._database.write(sweep.listen, self._clock.moment(), leadership, self._index)
        if agenda.is_tending_due:
            await self._database.write(sweep.tend, self._clock.moment(), leadership)
        moved = agenda.is_storm_due or agenda.is_silence_due or agenda.is_tending_due
        if self._is_reconcile_due(leadership.pool_id):
            moved |= await self._database.write(sweep.reconcile, self._clock.moment(), leadership)
        return touched, moved

    def _is_reconcile_due(self, pool_id: str) -> bool:
        now_ms = self._clock.moment().ms
        is_due = now_ms - self._reconciled_ms.get(pool_id, now_ms - _RECONCILE_MS) >= _RECONCILE_MS
        if is_due:
            self._reconciled_ms[pool_id] = now_ms
        return is_due

    async def _advance_all(self, leadership: Leadership, reservation_ids: Iterable[str]) -> bool:
        moved = False
        for batch in cut(tuple(dict.fromkeys(reservation_ids))):
            moved |= await self._advance(leadership, batch)
        return moved

    async def _advance(self, leadership: Leadership, batch: Sequence[str]) -> bool:
        try:
            return await self._database.write(sweep.advance_led, self._clock.moment(), leadership, batch, self._index)
        except (FencedError, DBAPIError, OSError):
            raise
        except Exception:  # noqa: BLE001 - a bug that one reservation meets must not stop the starts of all others
            if len(batch) == 1:
                _log.exception("reservation does not advance", reservation=batch[0])
                return False
        moved = False
        for reservation_id in batch:
            moved |= await self._advance(leadership, (reservation_id,))
        return moved

    async def _settle(self, leadership: Leadership, maintenance_id: str) -> tuple[str, ...]:
        return await self._database.write(sweep.settle_led, self._clock.moment(), leadership, maintenance_id)

    async def _make_ahead(self, series_id: str) -> bool:
        """Make the next occurrences of a series; return whether any was made. The rest is for the next round."""
        made = 0
        try:
            while made < _MADE_MAX and await self._database.flow(
                make_next, self._clock.moment(), series_id, self._index
            ):
                made += 1
        except (DBAPIError, OSError):
            raise
        except Exception:  # noqa: BLE001 - a bug that one series meets must not stop all others
            _log.exception("series does not go on", series=series_id)
        return made > 0

    async def _try_pending(self, agenda: Agenda) -> bool:
        """Try each line of pending work once, the oldest reservation first; return whether anything was placed."""
        pool_row, now_ms = agenda.pool_row, self._clock.moment().ms
        known = self._tried.get(pool_row.id)
        is_news = known is None or known.freed_version != pool_row.freed_version
        if not is_news and known is not None and now_ms - known.at_ms < pool_row.policy.retry_interval_ms:
            return False
        self._tried[pool_row.id] = _Tried(pool_row.freed_version, now_ms)
        lines = [(line.oldest_ms, line.key) for line in await self._database.read(waiting.lines, pool_row.id)]
        refused: dict[str, Condition] = {}
        placed = False
        while lines:
            _, key = heappop(lines)  # they come sorted, which is a heap
            retried, next_ms = await self._database.flow(
                retry_first, self._clock.moment(), pool_row.id, key, self._index
            )
            if retried is None:
                continue
            if retried.refusal is not None:
                refused[key] = retried.refusal
            elif retried.is_placed:
                placed = True
                await self._database.write(advance, self._clock.moment(), retried.reservation_id, self._index)
            if (retried.is_placed or retried.has_left) and next_ms is not None:
                heappush(lines, (next_ms, key))
        if refused:
            await self._tell(pool_row.id, refused)
        return placed

    async def _tell(self, pool_id: str, refused: Mapping[str, Condition]) -> None:
        if await self._database.read(waiting.are_news, pool_id, refused):
            await self._database.write(waiting.tell, pool_id, refused)


@dataclass(frozen=True, slots=True)
class _Tried:
    freed_version: int
    at_ms: int
