"""Hands: each act of the binding machine, done to the disk or to the world."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from muster_agent.clock import Clock
from muster_agent.core.records import (
    EXPOSED,
    Act,
    Evict,
    Forget,
    Grant,
    Look,
    Outcome,
    Record,
    Reset,
    Revoke,
    Save,
    SaveFence,
    Touch,
    Verify,
    Warn,
)
from muster_agent.drivers.bind import BindDriver, BindError
from muster_agent.drivers.bind.hooks import Hooks
from muster_agent.drivers.leavings import Leavings
from muster_agent.drivers.sentry import Sentry
from muster_agent.journal import Journal
from muster_agent.loop.resetting import Resetting

Aside = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs what may take its time so that the loop goes on meanwhile: in a thread, or in a test at once."""

_QUIET: Final = (Verify, Look)  # a look that found all well, each minute, tells nobody anything

_log = structlog.get_logger(part="hands")


class Hands:
    """Performs acts, one at a time. What touches the world has time limits and runs aside, what is written blocks.

    Args:
        journal: Where records and fence are kept.
        drivers: All of them make their artefact for each allocation, in this order, and take it away in reverse.
        clock: Dates the outcomes.
        leavings: Finds and ends processes; None where nothing does, as in a test without any.
        sentry: Arms the guard; None where there is none.
        resetting: Resets GPUs; None where nothing does.
        aside: Runs what may take its time.
    """

    def __init__(
        self,
        journal: Journal,
        drivers: Sequence[BindDriver],
        clock: Clock,
        *,
        leavings: Leavings | None = None,
        sentry: Sentry | None = None,
        resetting: Resetting | None = None,
        aside: Aside = asyncio.to_thread,
    ) -> None:
        self._journal = journal
        self._drivers = tuple(drivers)
        self._clock = clock
        self._leavings = leavings
        self._sentry = sentry
        self._resetting = resetting
        self._aside = aside
        self._logged = ("", "")  # the last trouble, which may come again each second until a grace is over
        self._armed = False  # what the sentry said in the act that is under way

    async def perform(self, act: Act) -> Outcome:
        """Do it, and say how it ended. Surroundings that fail are trouble in the outcome, never an exception."""
        trouble: str | None = None
        self._armed = False
        try:
            await self._do(act)
        except (BindError, OSError) as error:
            trouble = str(error)
        subject = _subject(act)
        if trouble and (act_trouble := (str(subject), trouble)) != self._logged:
            self._logged = act_trouble
            _log.warning("act failed", act=type(act).__name__, trouble=trouble, **subject)
        elif not trouble and not isinstance(act, _QUIET):
            _log.info("act", act=type(act).__name__, **subject)
        return Outcome(self._clock.boot_ms(), trouble, guard_armed=self._armed)

    def beat(self) -> None:
        """Say that ends are looked after: the guard need not."""
        if self._sentry:
            self._sentry.beat()

    async def _do(self, act: Act) -> None:
        match act:
            case SaveFence(fence):
                self._journal.save_fence(fence)
            case Save(record):
                self._journal.save(record)
                if record.state not in EXPOSED and self._sentry:
                    sentry = self._sentry
                    await self._aside(lambda: sentry.disarm(record.allocation_id))
            case Forget(allocation_id):
                self._journal.forget(allocation_id)
            case Reset(_, gpus):
                if self._resetting:
                    await self._resetting.reset(gpus)
            case _:
                await self._aside(lambda: self._touch(act))

    def _touch(self, act: Look | Touch) -> None:
        match act:
            case Look() if self._leavings:
                self._leavings.look(act)
            case Grant(record):
                self._grant(record)
            case Verify(record):
                self._armed = self._sentry is not None and self._sentry.arm(record)
                for driver in self._drivers:
                    driver.verify(record)
            case Revoke(record):
                self._revoke(record)
            case Evict() if self._leavings:
                self._leavings.evict(act)
            case Warn(record, preempt_boot_ms):
                for driver in self._drivers:
                    if isinstance(driver, Hooks):
                        driver.preempt(record, preempt_boot_ms - self._clock.boot_ms())
            case _:
                pass

    def _grant(self, record: Record) -> None:
        # The guard first: nobody may be let in whose end nobody would see to.
        self._armed = self._sentry is not None and self._sentry.arm(record)
        for driver in self._drivers:
            driver.grant(record)

    def _revoke(self, record: Record) -> None:
        # All of them, whatever one says: a driver in trouble must not keep another's artefact alive.
        troubles: list[str] = []
        for driver in reversed(self._drivers):
            try:
                driver.revoke(record)
            except BindError as error:
                troubles.append(str(error))
        if troubles:
            raise BindError("; ".join(troubles))


def _subject(act: Act) -> dict[str, object]:
    match act:
        case SaveFence(fence):
            return {"epoch": fence.epoch, "rev": fence.rev}
        case Forget(allocation_id):
            return {"allocation": allocation_id}
        case _:
            record = act.record
            return {
                "allocation": record.allocation_id,
                "generation": record.generation,
                "state": record.state,
                "reason": record.reason,
            }
