"""Every refusal as a problem document, whoever refused: a handler, this layer, the router, or a bug."""

import re
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from sqlalchemy.exc import DBAPIError, IntegrityError
from structlog.typing import FilteringBoundLogger

from muster_shared.codec import Message, encode
from muster_shared.errors import Code, FieldError, Problem

REQUEST_ID: Final = "X-Request-Id"

_ID: Final = web.RequestKey("request_id", str)  # what a request carries through the layer
_STARTED: Final = web.RequestKey("started", bool)
_GIVEN_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")  # safe in a log line and in a header
_BY_STATUS: Final = {code.http_status: code for code in reversed(Code)}  # of equals the first

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FieldErrorView(Message):
    """One thing wrong with a request."""

    path: str  # dotted, as in `gang.size`; empty for the whole request
    message: str


class ProblemView(Message):
    """Why a request was refused. It changed nothing. Programs branch on `code`.

    Source: RFC 9457; `type` stays `about:blank` because `code` already names the kind.
    """

    type: str = "about:blank"
    title: str
    status: int
    code: Code
    detail: str
    errors: tuple[FieldErrorView, ...] = ()
    request_id: str


def request_id_of(request: web.Request) -> str:
    """Return the id under which this request stands in answers and logs."""
    return str(request.get(_ID, ""))


def problem_middleware(logger: FilteringBoundLogger) -> Middleware:
    """Return the outermost middleware: gives each request its id and words every failure.

    A bug is answered with its request id alone; the story stands in the log under the same id.
    """

    @web.middleware
    async def answer_problems(request: web.Request, handler: _Handler) -> web.StreamResponse:
        given = request.headers.get(REQUEST_ID, "")
        request[_ID] = given if _GIVEN_ID.fullmatch(given) else f"req-{secrets.token_hex(8)}"
        try:
            return await handler(request)
        except Problem as problem:
            return _response(request, problem)
        except web.HTTPException as refusal:
            if refusal.status < HTTPStatus.BAD_REQUEST:
                raise
            return _response(request, _reworded(request, refusal), allow=refusal.headers.get(hdrs.ALLOW))
        except (DBAPIError, OSError) as failure:
            logger.warning("database failed", request_id=request[_ID], path=request.path, error=_first_line(failure))
            if request.get(_STARTED):
                raise
            return _response(request, _no_database(failure))
        except Exception:
            logger.exception("request failed", request_id=request[_ID], method=request.method, path=request.path)
            if request.get(_STARTED):
                raise  # half an answer is out: the server can only cut the connection
            return _response(request, Problem(Code.INTERNAL, "The coordinator failed; its log has the request id"))

    return answer_problems


def _no_database(failure: Exception) -> Problem:
    if isinstance(failure, IntegrityError):
        return Problem(Code.INTERNAL, "The coordinator failed; its log has the request id")  # ours, not the database's
    return Problem(
        Code.UNAVAILABLE,
        "The database cannot be read or written right now; try again. A call that got no further than this may have "
        "done its work before: look first, or repeat a create with the same idempotency key. The coordinator's log has "
        "the reason under the request id",
    )


def _first_line(failure: Exception) -> str:
    return str(failure).partition("\n")[0]


async def stamp(request: web.Request, response: web.StreamResponse) -> None:
    """Mark an answer before its headers leave: its request id, and that nobody may keep or reinterpret it."""
    request[_STARTED] = True
    response.headers[REQUEST_ID] = request_id_of(request)
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"


def _reworded(request: web.Request, refusal: web.HTTPException) -> Problem:
    code = _BY_STATUS.get(
        refusal.status, Code.INVALID_INPUT if refusal.status < HTTPStatus.INTERNAL_SERVER_ERROR else Code.INTERNAL
    )
    match code:
        case Code.NOT_FOUND:
            return Problem(code, "Nothing is served at this path; GET /v1/openapi.json lists every operation")
        case Code.METHOD_NOT_ALLOWED:
            return Problem(code, f"{request.method} is not served here, but {refusal.headers.get(hdrs.ALLOW)}")
        case _:
            return Problem(code, refusal.reason)


def _response(request: web.Request, problem: Problem, allow: str | None = None) -> web.Response:
    view = ProblemView(
        title=HTTPStatus(problem.code.http_status).phrase,
        status=problem.code.http_status,
        code=problem.code,
        detail=problem.detail,
        errors=tuple(_field_view(error) for error in problem.errors),
        request_id=request_id_of(request),
    )
    response = web.Response(body=encode(view), status=view.status, content_type="application/problem+json")
    if allow is not None:
        response.headers[hdrs.ALLOW] = allow
    if problem.code is Code.UNAUTHENTICATED:
        response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if problem.code is Code.TOO_LARGE:
        response.force_close()  # the rest of the body is not worth reading
    return response


def _field_view(error: FieldError) -> FieldErrorView:
    return FieldErrorView(path=error.path, message=error.message)
