"""Makes a web application from a tuple of operations: authorize, read, call the handler, write."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware
from structlog.typing import FilteringBoundLogger

from muster_coordinator.api.errors import problem_middleware, request_id_of, stamp
from muster_coordinator.api.incoming import bearer_token, idempotency_key, read_body, read_path, read_query
from muster_coordinator.api.openapi import document_of
from muster_coordinator.api.operation import Answer, Call, Door, Operation
from muster_coordinator.metrics import Counts
from muster_coordinator.service.access.guard import Guard
from muster_shared.codec import dumps, encode

DOCUMENT_PATH: Final = "/v1/openapi.json"
KEEPALIVE_S: Final = 75.0  # far from every agent's interval, so that none sends into a closing connection
SHUTDOWN_S: Final = 10.0  # for calls in flight; streams and long polls end at once by `Call.closing`


def build_app(
    operations: Sequence[Operation],
    services: Callable[[Guard], object],
    door: Door,
    logger: FilteringBoundLogger,
    counts: Counts,
) -> web.Application:
    """Serve the operations, and beside them their own OpenAPI document.

    Args:
        operations: No two with the same method and path.
        services: Makes what the handler of one call finds as `call.services`.
        door: Encloses each call, and is asked before its body is read; also for public operations.
        logger: Hears of bugs only; refusals are the caller's business.
        counts: Counts every call.
    """
    closing = asyncio.Event()

    async def close(_app: web.Application) -> None:
        closing.set()

    app = web.Application(middlewares=[_counting(counts), problem_middleware(logger)])
    app.on_response_prepare.append(stamp)
    app.on_shutdown.append(close)
    for operation in _with_document(operations):
        app.router.add_route(operation.method, operation.path, _serve(operation, services, door, closing))
    return app


def _counting(counts: Counts) -> Middleware:
    """Return the middleware that counts each call under its operation; what no operation serves is one of them."""

    @web.middleware
    async def count(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        clock = asyncio.get_running_loop().time
        began_s = clock()
        answer = await handler(request)
        resource = request.match_info.route.resource
        operation = "other" if resource is None else f"{request.method} {resource.canonical}"
        counts.called(operation, answer.status, clock() - began_s if isinstance(answer, web.Response) else None)
        return answer

    return count


def runner_of(app: web.Application) -> web.AppRunner:
    """Return the runner that the application is meant for; the caller adds its sites."""
    # Left to itself the parser unpacks a compressed body, or fails on it, before this layer can refuse it.
    return web.AppRunner(app, auto_decompress=False, keepalive_timeout=KEEPALIVE_S, shutdown_timeout=SHUTDOWN_S)


def _with_document(operations: Sequence[Operation]) -> list[Operation]:
    async def document(_call: Call[object, None, None]) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    described = Operation(
        "GET", DOCUMENT_PATH, "Describe this API", document, audience="public", action="compute:document:read"
    )
    served = [*operations, described]
    body = dumps(document_of(served))
    return served


def _serve(
    operation: Operation, services: Callable[[Guard], object], door: Door, closing: asyncio.Event
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def serve(request: web.Request) -> web.StreamResponse:
        token = bearer_token(request)
        path = read_path(request)
        async with door(operation, token, path, request) as guard:
            call = Call(
                services=services(guard),
                guard=guard,
                path=path,
                query=read_query(request, operation),
                body=await read_body(request, operation),
                token=token,
                idempotency_key=idempotency_key(request),
                request_id=request_id_of(request),
                closing=closing,
                http=request,
            )
            guard.reason = getattr(call.body, "reason", None) or getattr(call.query, "reason", None)
            guard.is_audited = guard.is_audited and not getattr(call.body, "dry_run", False)
            return _written(operation, await operation.handler(call))

    return serve


def _written(operation: Operation, answer: Answer) -> web.StreamResponse:
    match answer:
        case web.StreamResponse():
            return answer
        case None if operation.answer is None:
            return web.Response(status=204)
        case _ if operation.answer is not None and isinstance(answer, operation.answer):
            return web.Response(body=encode(answer), status=operation.status, content_type="application/json")
        case _:
            # The document promised another answer: a bug of ours, told to the log and not to the caller.
            raise TypeError(f"{operation.method} {operation.path} answered with {type(answer).__name__}")
