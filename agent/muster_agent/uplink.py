"""Talking to the coordinator: join, report, fetch the desired state; and trying again without a stampede.

`Transport` is one call each, `Uplink` is what the loop uses: it joins where it must and never gives up.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, TypeVar

import aiohttp
import structlog
import tenacity

from muster_agent.clock import Clock
from muster_agent.core.desired import Desired, timed
from muster_agent.core.readings import one_line
from muster_shared.codec import decode, encode, loads
from muster_shared.errors import Code, Problem
from muster_shared.time import format_duration
from muster_shared.wire import Credential, DesiredState, Registration, Report, ReportAnswer

ANSWER_BYTES_MAX: Final = 1024 * 1024  # a desired state of 256 assignments is below 256 KiB
CALL_S: Final = 10  # one call without its wait; a coordinator that needs longer is overrun and should be left alone
_SECONDS: Final = re.compile(r"[0-9]{1,3}")  # a slip of the coordinator must not silence a node for a day
_log: Final = structlog.get_logger(part="uplink")

T = TypeVar("T")
Answer = TypeVar("Answer", Credential, ReportAnswer, DesiredState)


class UplinkError(Exception):
    """A call that did not work. The text is for the log."""

    def __init__(self, detail: str, retry_after_ms: int = 0) -> None:
        super().__init__(detail)
        self.retry_after_ms = retry_after_ms  # the coordinator's own wish, 0 where it has none


class UnreachableError(UplinkError):
    """No answer, or none that makes sense: the network, a proxy, or a coordinator in trouble."""


class IdentityUnknownError(UplinkError):
    """The coordinator does not know this node or its token: it must join again."""


class RefusedError(UplinkError):
    """The coordinator understood and said no. A person has to change something."""


class Transport(Protocol):
    """One attempt at each call. Raises an `UplinkError` of the kind that fits, and nothing else."""

    async def register(self, registration: Registration, /) -> Credential:
        """Join, or join again."""
        ...

    async def report(self, credential: Credential, report: Report, /) -> ReportAnswer:
        """Tell the whole truth of the node."""
        ...

    async def desired(self, credential: Credential, rev: int, wait_ms: int, /) -> DesiredState | None:
        """Ask for a desired state above `rev`, waiting up to `wait_ms` for one; None if there was none."""
        ...


def session() -> aiohttp.ClientSession:
    """Open what `HttpTransport` needs: few connections, no cookies, no proxy of the environment, no inflating."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=4),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


class HttpTransport:
    """The calls over HTTP. Answers are bounded and never followed elsewhere.

    Args:
        session: Open for the life of the agent.
        url: Of the coordinator, without a path.
        join_token: Sent with `register` only; None where the coordinator asks for none.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, join_token: str | None = None) -> None:
        self._session = session
        self._nodes = f"{url.rstrip('/')}/v1/nodes"
        self._join_token = join_token

    async def register(self, registration: Registration, /) -> Credential:
        """POST /v1/nodes/register."""
        try:
            return _present(await self._call("POST", "/register", self._join_token, Credential, encode(registration)))
        except IdentityUnknownError as error:
            # No identity is asked for here: it is the join token, or the pool, that is unknown.
            raise RefusedError(str(error), error.retry_after_ms) from None

    async def report(self, credential: Credential, report: Report, /) -> ReportAnswer:
        """POST /v1/nodes/{id}/report."""
        path = f"/{credential.node_id}/report"
        return _present(await self._call("POST", path, credential.token, ReportAnswer, encode(report)))

    async def desired(self, credential: Credential, rev: int, wait_ms: int, /) -> DesiredState | None:
        """GET /v1/nodes/{id}/desired: 200 with a state above `rev`, or 304."""
        path = f"/{credential.node_id}/desired?rev={rev}&wait={format_duration(wait_ms)}"
        return await self._call("GET", path, credential.token, DesiredState, wait_s=wait_ms / 1_000)

    async def _call(
        self,
        method: str,
        path: str,
        token: str | None,
        answer: type[Answer],
        body: bytes | None = None,
        wait_s: float = 0,
    ) -> Answer | None:
        # `identity`: a small answer that inflates to gigabytes must not be possible.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            async with self._session.request(
                method,
                self._nodes + path,
                data=body,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=CALL_S + wait_s),
            ) as response:
                text = await _bounded(response)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise UnreachableError(f"{method} {path}: {type(error).__name__} {error}".rstrip()) from error
        if response.status == HTTPStatus.NOT_MODIFIED:
            return None
        if response.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise _refusal(method, path, response, text)
        try:
            return decode(answer, text)
        except Problem as problem:
            raise UnreachableError(f"{method} {path}: the answer is wrong: {problem.detail}") from None


def _present(answer: Answer | None) -> Answer:
    if answer is None:
        raise UnreachableError("the coordinator answered 304 to a POST")
    return answer


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise ValueError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return bytes(body)


def _refusal(method: str, path: str, response: aiohttp.ClientResponse, text: bytes) -> UplinkError:
    try:
        problem = loads(text)
        code, detail = problem["code"], one_line(str(problem["detail"]))
    except (ValueError, TypeError, KeyError):
        code, detail = None, "no problem+json: is this really the coordinator?"
    said = f"{method} {path}: {response.status} {detail}"
    wish = response.headers.get("Retry-After", "")
    # A date is legal here too, but counts on the node's wall clock; our coordinator sends seconds.
    retry_after_ms = int(wish) * 1_000 if _SECONDS.fullmatch(wish) else 0
    busy = response.status >= HTTPStatus.INTERNAL_SERVER_ERROR or response.status == HTTPStatus.TOO_MANY_REQUESTS
    if busy or code is None:
        return UnreachableError(said, retry_after_ms)
    if code in {Code.UNAUTHENTICATED, Code.NOT_FOUND}:
        return IdentityUnknownError(said, retry_after_ms)
    return RefusedError(said, retry_after_ms)


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
