"""The calls to the coordinator over HTTP: one attempt each, answers bounded, every failure named."""

import re
from http import HTTPStatus
from typing import Final, TypeVar

import aiohttp

from muster_agent.core.readings import one_line
from muster_agent.uplink import IdentityUnknownError, RefusedError, UnreachableError, UplinkError
from muster_shared.codec import decode, encode, loads
from muster_shared.errors import Code, Problem
from muster_shared.time import format_duration
from muster_shared.wire import Credential, DesiredState, Registration, Report, ReportAnswer

ANSWER_BYTES_MAX: Final = 1024 * 1024  # a desired state of 256 assignments is below 256 KiB
CALL_S: Final = 10  # one call without its wait; a coordinator that needs longer is overrun and should be left alone
_SECONDS: Final = re.compile(r"[0-9]{1,3}")  # a slip of the coordinator must not silence a node for a day

Answer = TypeVar("Answer", Credential, ReportAnswer, DesiredState)


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
