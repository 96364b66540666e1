"""Run something again and again, at an interval or at once after a change, and survive its failures."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from sqlalchemy.exc import DBAPIError

from muster_coordinator.notifier import Notifier
from muster_coordinator.service.sweep import FencedError

_log = structlog.get_logger(__name__)

_RETRY_S: Final = 1.0  # after a failure: soon, since a start may wait for it; never in a tight circle


async def every(run_once: Callable[[], Awaitable[None]], interval_s: float, notifier: Notifier, name: str) -> None:
    """Call `run_once` for ever. The database being away, or another leader, ends a round, not the loop."""
    while True:
        seen = notifier.beats
        try:
            await run_once()
        except FencedError as error:
            _log.warning("fenced", loop=name, reason=str(error))
        except (DBAPIError, OSError):
            _log.exception("round failed", loop=name, next_try_s=_RETRY_S)
            await asyncio.sleep(_RETRY_S)
        await notifier.wait(seen, interval_s)
