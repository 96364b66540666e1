"""Delivers events to receivers: each has a task of its own while something is due, so that none waits for another."""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Final

import structlog
from sqlalchemy.exc import DBAPIError

from muster_coordinator.clock import Clock
from muster_coordinator.loops.post import IN_FLIGHT, Post
from muster_coordinator.metrics import Counts
from muster_coordinator.notifier import Notifier
from muster_coordinator.service.outward import outbox
from muster_coordinator.service.outward.outbox import Claimed, Letter, Outcome
from muster_coordinator.store.engine import Database

PROBE_MS: Final = 5_000  # after a failure of a receiver, before anything else is tried there ...
PROBE_MAX_MS: Final = 60_000  # ... doubled at each further one up to this
_PRUNE_EVERY_MS: Final = 3_600_000  # a day's deliveries go in a few statements
_log = structlog.get_logger(__name__)


class Deliveries:
    """Runs the outbox. Several coordinators may: each delivery is claimed before it is sent."""

    def __init__(self, database: Database, clock: Clock, post: Post, counts: Counts, recorded: Notifier) -> None:
        self._database = database
        self._clock = clock
        self._post = post
        self._counts = counts
        self._recorded = recorded
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._paces: dict[str, tuple[int, int]] = {}  # receiver -> how long it is left alone, and until when
        self._prune_ms = 0

    async def run_once(self) -> None:
        """Begin to deliver what is due; what is under way goes on by itself."""
        at = self._clock.moment()
        if at.ms >= self._prune_ms:
            self._prune_ms = at.ms + _PRUNE_EVERY_MS
            await self._database.write(outbox.prune, at)
        for webhook_id in await self._database.read(outbox.due, at):
            _, until_ms = self._paces.get(webhook_id, (0, 0))
            if webhook_id not in self._tasks and at.ms >= until_ms:
                task = asyncio.create_task(self._deliver(webhook_id), name=f"deliver {webhook_id}")
                self._tasks[webhook_id] = task

    async def idle(self) -> None:
        """Return once nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def close(self) -> None:
        """Stop: what is under way is sent again later, under the same id."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(self, webhook_id: str) -> None:
        try:
            await self._deliver_due(webhook_id)
        finally:
            del self._tasks[webhook_id]

    async def _deliver_due(self, webhook_id: str) -> None:
        """Deliver until nothing is due, or the receiver fails."""
        try:
            while claimed := await self._database.write(outbox.claim, self._clock.moment(), webhook_id):
                outcomes = await self._sent(claimed)
                settled = await self._database.write(outbox.settle, self._clock.moment(), webhook_id, outcomes)
                if settled:
                    self._recorded.beat()
                if not any(outcome.is_sent and outcome.error is None for outcome in outcomes):
                    self._leave_alone(webhook_id)
                    return
                self._paces.pop(webhook_id, None)
        except (DBAPIError, OSError) as error:
            _log.warning("deliveries wait for the database", webhook=webhook_id, error=str(error).partition("\n")[0])
        except Exception:  # noqa: BLE001 - a bug that one receiver meets must not stop the others
            _log.exception("deliveries failed", webhook=webhook_id)
            self._leave_alone(webhook_id)

    def _leave_alone(self, webhook_id: str) -> None:
        pace_ms, _ = self._paces.get(webhook_id, (0, 0))
        pace_ms = min(max(2 * pace_ms, PROBE_MS), PROBE_MAX_MS)
        self._paces[webhook_id] = (pace_ms, self._clock.moment().ms + pace_ms)

    async def _sent(self, claimed: Claimed) -> list[Outcome]:
        """Send what was claimed: one subject's letters one after the other, several subjects beside each other."""
        by_subject = sorted(claimed.letters, key=lambda letter: letter.event.subject)  # stable: in order within one
        in_flight = asyncio.Semaphore(IN_FLIGHT)
        threads = [
            self._thread(claimed, list(letters), in_flight)
            for _, letters in groupby(by_subject, key=lambda letter: letter.event.subject)
        ]
        return [outcome for outcomes in await asyncio.gather(*threads) for outcome in outcomes]

    async def _thread(self, claimed: Claimed, letters: Sequence[Letter], in_flight: asyncio.Semaphore) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for letter in letters:
            if outcomes and outcomes[-1].error is not None:
                outcomes.append(Outcome(letter, outcomes[-1].error, is_sent=False))
                continue
            async with in_flight:
                now_ms = self._clock.moment().ms
                verdict = await self._post.send(claimed.url, claimed.secrets, letter.event, now_ms)
            self._counts.attempted(claimed.name, delivered=verdict.error is None)
            outcomes.append(Outcome(letter, verdict.error, is_gone=verdict.is_gone))
        return outcomes
