"""Hands: each act of the binding machine, done to the disk or to the world."""

from collections.abc import Sequence

import structlog

from muster_agent.clock import Clock
from muster_agent.core.records import Act, Forget, Grant, Outcome, Record, Revoke, Save, SaveFence, Verify
from muster_agent.drivers.bind import BindDriver, BindError
from muster_agent.journal import Journal

_log = structlog.get_logger(part="hands")


class Hands:
    """Performs acts, one at a time. Each blocks for a few small writes to local disk, no longer.

    Args:
        journal: Where records and fence are kept.
        drivers: All of them make their artefact for each allocation, in this order.
        clock: Dates the outcomes.
    """

    def __init__(self, journal: Journal, drivers: Sequence[BindDriver], clock: Clock) -> None:
        self._journal = journal
        self._drivers = tuple(drivers)
        self._clock = clock

    def perform(self, act: Act) -> Outcome:
        """Do it, and say how it ended. Surroundings that fail are trouble in the outcome, never an exception."""
        trouble: str | None = None
        try:
            self._do(act)
        except (BindError, OSError) as error:
            trouble = str(error)
        if trouble:
            _log.warning("act failed", act=type(act).__name__, trouble=trouble, **_subject(act))
        elif not isinstance(act, Verify):  # a look that found all well, each minute, tells nobody anything
            _log.info("act", act=type(act).__name__, **_subject(act))
        return Outcome(self._clock.boot_ms(), trouble)

    def _do(self, act: Act) -> None:
        match act:
            case SaveFence(fence):
                self._journal.save_fence(fence)
            case Save(record):
                self._journal.save(record)
            case Forget(allocation_id):
                self._journal.forget(allocation_id)
            case Grant(record):
                for driver in self._drivers:
                    driver.grant(record)
            case Verify(record):
                for driver in self._drivers:
                    driver.verify(record)
            case Revoke(record):
                self._revoke(record)

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
        case Save(record) | Grant(record) | Verify(record) | Revoke(record):
            return {
                "allocation": record.allocation_id,
                "generation": record.generation,
                "state": record.state,
                "reason": record.reason,
            }
