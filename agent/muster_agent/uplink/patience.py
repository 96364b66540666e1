"""Talking to the coordinator as the loop wants it: joining where it must, trying again without a stampede."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog
import tenacity

from muster_agent.clock import Clock
from muster_agent.core.desired import Desired, timed
from muster_agent.uplink import IdentityUnknownError, RefusedError, Transport, UnreachableError, UplinkError
from muster_shared.wire import Credential, Registration, Report, ReportAnswer

_log: Final = structlog.get_logger(part="uplink")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pause:
    """How long to wait between attempts: full jitter below a doubling bound."""

    first_ms: int
    cap_ms: int


_BEATS_AWAY: Final = 8  # heartbeats between two attempts at most: the coordinator stretches them as its fleet grows
PAUSES: Final[dict[type[UplinkError], Pause]] = {
    UnreachableError: Pause(1_000, 60_000),  # reliability facts, F07: back within 60 s of the coordinator
    IdentityUnknownError: Pause(1_000, 60_000),
    RefusedError: Pause(60_000, 60_000),  # a person must act first, so nothing is gained by haste
}
"""The whole retry policy, by what went wrong."""


class Uplink:
    """The calls as the loop wants them: each joins where it must, and is tried again until it works.

    Args:
        transport: HTTP, or the simulation's own.
        clock: For pauses, jitter, and the times of a desired state.
        registration: What to join with, asked anew at each attempt.
        accept: Takes over a new identity, durably; returns a sentence where it must not be taken.
        credential: From an earlier run; None to join first.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        registration: Callable[[], Registration],
        accept: Callable[[Credential], str | None],
        credential: Credential | None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._registration = registration
        self._accept = accept
        self._credential = credential
        self._heartbeat_ms = credential.heartbeat_ms if credential else None
        self._joining = asyncio.Lock()

    async def joined(self) -> Credential:
        """Return who this node is, joining if nobody has said so yet."""
        async with self._joining:
            if self._credential is None:
                self._credential = await self._persistently(self._join)
            return self._credential

    async def report(self, make: Callable[[], Report]) -> ReportAnswer:
        """Send a report, made anew for each attempt: an old one would only be refused as stale."""
        answer = await self._as_node(lambda credential: self._transport.report(credential, make()))
        self._heartbeat_ms = answer.heartbeat_ms
        return answer

    async def desired(self, rev: Callable[[], int], wait_ms: int) -> Desired | None:
        """Fetch a desired state above `rev`, its times on the boot clock; None if none came within `wait_ms`.

        Args:
            rev: Asked anew for each attempt: a new identity starts again from 0.
            wait_ms: At least 1.
        """

        async def ask(credential: Credential) -> Desired | None:
            sent_boot_ms = self._clock.boot_ms()
            state = await self._transport.desired(credential, rev(), wait_ms)
            received_boot_ms = self._clock.boot_ms()
            if state is None:
                return None
            return timed(state, sent_boot_ms=sent_boot_ms, received_boot_ms=received_boot_ms)

        return await self._as_node(ask)

    async def _join(self) -> Credential:
        credential = await self._transport.register(self._registration())
        if why := self._accept(credential):
            raise RefusedError(why)
        self._heartbeat_ms = credential.heartbeat_ms
        _log.info("joined", node=credential.node_id, cluster=credential.cluster_id)
        return credential

    async def _as_node(self, call: Callable[[Credential], Awaitable[T]]) -> T:
        async def attempt() -> T:
            credential = await self.joined()
            try:
                return await call(credential)
            except IdentityUnknownError:
                if self._credential is credential:  # the other task may have joined again meanwhile
                    self._credential = None
                raise

        return await self._persistently(attempt)

    async def _persistently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(UplinkError),
            wait=self._pause_s,
            sleep=self._sleep_s,
            before_sleep=_tell,
        )
        return await retrying(attempt)

    def _pause_s(self, retry: tenacity.RetryCallState) -> float:
        error = _error_of(retry)
        pause = PAUSES[type(error)]
        cap_ms = pause.cap_ms
        if self._heartbeat_ms is not None:
            cap_ms = min(cap_ms, max(pause.first_ms, _BEATS_AWAY * self._heartbeat_ms))
        bound_ms = min(cap_ms, pause.first_ms << min(retry.attempt_number - 1, 16))
        return max(round(bound_ms * self._clock.random()), error.retry_after_ms) / 1_000

    async def _sleep_s(self, seconds: float) -> None:
        await self._clock.sleep(round(seconds * 1_000))


def _error_of(retry: tenacity.RetryCallState) -> UplinkError:
    error = retry.outcome.exception() if retry.outcome else None
    assert isinstance(error, UplinkError)  # no other kind is retried
    return error


def _tell(retry: tenacity.RetryCallState) -> None:
    error = _error_of(retry)
    _log.warning(
        "refused" if isinstance(error, RefusedError) else "unreachable",
        detail=str(error),
        attempt=retry.attempt_number,
        again_in_s=round(retry.next_action.sleep, 1) if retry.next_action else None,
    )
