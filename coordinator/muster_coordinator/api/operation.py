"""One HTTP operation as a value: the whole API is a tuple of these, and its document is drawn from them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel

from muster_coordinator.service.access.guard import Guard
from muster_shared.errors import Code

BODY_BYTES_MAX: Final = 256 * 1024
"""What a request of a person may weigh; the largest honest one is far below 16 KiB."""

Audience = Literal["public", "tenant", "node", "operator", "scraper"]
"""Whom an operation is made for, and by which credential it knows them. What they may do, policies decide."""

S = TypeVar("S")
B = TypeVar("B")
Q = TypeVar("Q")


@dataclass(frozen=True, slots=True)
class Call(Generic[S, B, Q]):
    """Everything a handler may look at: `Call[Services, BodyModel, QueryModel]`, `None` where there is no model."""

    services: S
    guard: Guard  # who calls, and what policies say to it
    path: Mapping[str, str]  # parameters of the path, percent-decoded, otherwise unchecked
    body: B
    query: Q
    token: str | None  # for what trades one credential for another; everything else looks at `guard`
    idempotency_key: str | None  # of the header
    request_id: str
    closing: asyncio.Event  # set when the server stops: whatever waits longer than a moment waits on it too
    http: web.Request  # for negotiation and streams only


Answer = BaseModel | web.StreamResponse | None
"""What a handler returns: a message, a stream that it has written, or nothing (204)."""

Handler = Callable[[Call[Any, Any, Any]], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str  # as in `/v1/nodes/{id}`
    summary: str
    handler: Handler
    body: type[BaseModel] | None = None  # a model whose fields are all optional may be sent as no body at all
    query: type[BaseModel] | None = None  # flat: strings, integers, booleans
    answer: type[BaseModel] | None = None
    status: Literal[200, 201] = 200
    errors: tuple[Code, ...] = ()  # beyond those that every operation of its shape may answer
    audience: Audience = "tenant"
    action: str = ""  # of `service.access.actions`; one that is not there is refused to everybody
    max_body: int = BODY_BYTES_MAX  # bytes


Door = Callable[[Operation, str | None, Mapping[str, str], web.Request], AbstractAsyncContextManager[Guard]]
"""Encloses a call: lets it in or raises `Problem`, by its operation, bearer token and path, and keeps what came of it.
"""
