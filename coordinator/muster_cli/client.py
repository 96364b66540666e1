"""Calls the coordinator over HTTP, with nothing but the standard library: a command starts in a blink."""

import http.client
import json
import re
import ssl
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

from muster_cli.failures import Failure, refused, unreachable
from muster_shared.errors import Code

TIMEOUT_S: Final = 30.0  # a placement in a large pool takes seconds; a person gives up soon after
STREAM_TIMEOUT_S: Final = 60.0  # four of the stream's heartbeats

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
_BY_STATUS: Final = {code.http_status: code for code in Code}

Document = dict[str, Any]
Query = Mapping[str, str | int | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """A document of the coordinator, and the time on its clock: relative times are counted from there."""

    document: Document  # empty where the coordinator had nothing to tell
    now_ms: int | None  # to the second; None where something on the way dropped the Date header


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    seq: str  # what resumes the stream after it
    document: Document


class Client:
    """One coordinator, as one caller sees it."""

    def __init__(self, url: str, token: str | None) -> None:
        """Take the coordinator's address.

        Args:
            url: `http://` or `https://`, with a path where a proxy serves the API below one.
            token: The bearer token, or None.

        Raises:
            ValueError: The address or the token cannot be one; the message says why.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of a coordinator: use http://HOST:PORT or https://HOST")
        if token is not None and not _VISIBLE.fullmatch(token):
            raise ValueError("MUSTER_TOKEN holds characters that no token has")
        self.url = url
        self._tls = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._token = token

    def get(self, path: str, query: Query | None = None) -> Answer:
        """Read one document."""
        return self.send("GET", path, query=query)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, object] | None = None,
        key: str | None = None,
    ) -> Answer:
        """Make one call.

        Args:
            method: As in HTTP.
            path: Below the coordinator's address; its parts made by `part`.
            query: Absent (None) values are left out.
            body: A JSON document.
            key: The idempotency key.

        Raises:
            Failure: The coordinator refused, or none answered.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        with self._opened(method, path, query, body, headers, TIMEOUT_S) as response:
            content = response.read()
            return Answer(self._document(content) if content else {}, _date_ms(response))

    def pages(self, path: str, query: Query, limit: int | None) -> Answer:
        """Read a list: the first `limit` items with the cursor that goes on, or without a limit all of it."""
        answer = self.get(path, {**query, "limit": limit})
        items: list[Any] = list(answer.document["items"])
        page = answer.document
        while limit is None and (cursor := page.get("nextCursor")):
            page = self.get(path, {**query, "cursor": cursor}).document
            items += page["items"]
        return answer if limit is not None else Answer({"items": items}, answer.now_ms)

    def stream(self, path: str, query: Query, after: str | None) -> Iterator[Event | None]:
        """Read events until the coordinator ends the stream; the first thing is None: it is connected.

        Args:
            path: Below the coordinator's address.
            query: What to filter by.
            after: The `seq` of the last event seen, or None.

        Raises:
            Failure: The coordinator refused, or the connection broke.
        """
        headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": after})
        with self._opened("GET", path, query, None, headers, STREAM_TIMEOUT_S) as response:
            if response.headers.get_content_type() != "text/event-stream":
                raise unreachable(self.url, "it answers, but with no stream of events")
            yield None
            fields: dict[str, str] = {}
            for raw in response:
                line = raw.decode(errors="replace").rstrip("\r\n")
                name, _, value = line.partition(":")  # a comment has no name
                fields |= {name: value.removeprefix(" ")} if name else {}
                if not line and "data" in fields:
                    yield Event(fields.get("id", ""), self._document(fields.pop("data").encode()))

    @contextmanager
    def _opened(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Mapping[str, object] | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Generator[http.client.HTTPResponse]:
        present = {name: value for name, value in (query or {}).items() if value is not None}
        target = self._prefix + path + (f"?{urlencode(present, errors='replace')}" if present else "")
        sent = {"Accept": "application/json, application/problem+json", **headers}
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection = self._connection(timeout_s)
        try:
            connection.request(method, target, None if body is None else json.dumps(body).encode(), sent)
            response = connection.getresponse()
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise self._refusal(response)
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self.url, error) from None
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def _document(self, content: bytes) -> Document:
        try:
            document: object = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise unreachable(self.url, "it answers, but not as a coordinator does")
        return cast("Document", document)

    def _refusal(self, response: http.client.HTTPResponse) -> Failure:
        """Read a problem document; what stands between us and the coordinator may refuse without one."""
        code = _BY_STATUS.get(response.status, Code.INTERNAL)
        request_id = response.getheader("X-Request-Id")
        if response.headers.get_content_type() != "application/problem+json":
            return refused(code, f"HTTP {response.status} {response.reason}", (), request_id)
        problem = self._document(response.read())
        named = Code(problem["code"]) if problem["code"] in set(Code) else code
        errors = [(str(error["path"]), str(error["message"])) for error in problem.get("errors", ())]
        return refused(named, str(problem["detail"]), errors, problem.get("requestId", request_id))


def part(text: str) -> str:
    """Write an id or a name as one part of a path."""
    return quote(text, safe="", errors="replace")


def _date_ms(response: http.client.HTTPResponse) -> int | None:
    date = response.getheader("Date")
    try:
        return int(parsedate_to_datetime(date).timestamp()) * 1000 if date else None
    except ValueError:
        return None
