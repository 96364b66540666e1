"""Run something again and again, at an interval or at once after a change, and survive its failures."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from sqlalchemy.exc import DBAPIError

from muster_coordinator.metrics import Counts
from muster_coordinator.notifier import Notifier
from muster_coordinator.service.sweep import LEASE_MS, FencedError

_log = structlog.get_logger(__name__)

_RETRY_S: Final = 1.0  # after a failure: soon, since a start may wait for it; never in a tight circle


async def every(
    run_once: Callable[[], Awaitable[None]],
    interval_s: float,
    notifier: Notifier,
    name: str,
    counts: Counts,
    absent: Callable[[], None] | None = None,
    apart_s: float = 0.0,
) -> None:
    """Call `run_once` for ever. The database being away, or another leader, ends a round, not the loop.

    Args:
        run_once: One round.
        interval_s: Between two rounds, unless there is a beat before.
        notifier: Whose beats begin a round at once.
        name: For the log.
        counts: Counts the rounds.
        absent: Called before a round that comes so late that the process was stopped, suspended or starved.
        apart_s: From the end of a round to the next, however many beats there are: one round then serves them all.
    """
    clock = asyncio.get_running_loop().time
    began_s = clock()
    late_s = 0.0
    while True:
        if absent is not None and clock() - began_s > LEASE_MS / 1000:
            _log.warning("this process was away", loop=name, seconds=round(clock() - began_s))
            absent()
        began_s = clock()
        counts.loop_began(name, began_s, late_s)
        outcome = "ok"
        seen = notifier.beats
        try:
            await run_once()
        except FencedError as error:
            outcome = "fenced"
            counts.fenced("epoch")
            _log.warning("fenced", loop=name, reason=str(error))
        except (DBAPIError, OSError):
            outcome = "failed"
            _log.exception("round failed", loop=name, next_try_s=_RETRY_S)
        counts.loop_ended(name, outcome, began_s, clock())
        if outcome == "failed":
            await asyncio.sleep(_RETRY_S)
        if apart_s:
            await asyncio.sleep(apart_s)
        waits_s = clock()
        await notifier.wait(seen, interval_s)
        late_s = max(clock() - waits_s - interval_s, 0.0)
