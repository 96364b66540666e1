"""The one door: who calls, by which credential, whether policies let them in, and what is kept of it."""

from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from muster_coordinator.api.errors import request_id_of
from muster_coordinator.api.operation import Operation
from muster_coordinator.clock import Clock
from muster_coordinator.notifier import Notifier
from muster_coordinator.service.access import audit, tokens
from muster_coordinator.service.access.actions import ACTIONS, PUBLIC, Subject
from muster_coordinator.service.access.book import AccessBook
from muster_coordinator.service.access.caller import LOCAL, NOBODY, ROOT, SCRAPER, WHOLE, Caller, Resource, node_caller
from muster_coordinator.service.access.find import found, missing
from muster_coordinator.service.access.guard import Guard
from muster_coordinator.service.admit import DEFAULT_POOL
from muster_coordinator.service.nodes import join
from muster_coordinator.store.engine import Database
from muster_shared.errors import Code, Problem

_STRANGERS_MAX: Final = 100  # a minute, of whom the audit log keeps that they showed no good credential
_MINUTE_MS: Final = 60_000


class Doorway:
    """Lets calls in, each with its guard."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        book: AccessBook,
        recorded: Notifier,
        api_token: str | None,
        metrics_token: str | None = None,
    ) -> None:
        """Take what the door needs.

        Args:
            database: Where tokens and the nodes' credentials are.
            clock: By which tokens expire.
            book: The policies, as this process knows them.
            recorded: Beaten when something stands in the audit log.
            api_token: Of the configuration, good for everything. Without it, and as long as nobody was given a token,
                whoever reaches the coordinator is an operator: the configuration lets that be on loopback alone.
            metrics_token: Good for the metrics alone, so that a scraper need not hold a token that can do more.
        """
        self._database = database
        self._clock = clock
        self._book = book
        self._recorded = recorded
        self._api_token = api_token
        self._metrics_token = metrics_token
        self._strangers: deque[int] = deque()

    @asynccontextmanager
    async def enter(
        self, operation: Operation, token: str | None, path: Mapping[str, str], request: web.Request
    ) -> AsyncGenerator[Guard]:
        """Enclose a call."""
        guard = Guard(
            NOBODY,
            self._book,
            operation.action,
            self._clock.moment().ms,
            request_id=request_id_of(request),
            source=request.remote or "",
            subject=path.get("id", ""),
            is_audited=is_audited(operation),
        )
        try:
            guard.caller = await self._caller(operation, token, path, guard.at_ms)
            await self._authorize(operation, guard, path, request)
            yield guard
        except Problem as problem:
            guard.is_denied = guard.is_denied or problem.code in {Code.UNAUTHENTICATED, Code.FORBIDDEN}
            await self._keep(guard, problem.code)
            raise
        await self._keep(guard, audit.OK)

    async def _keep(self, guard: Guard, outcome: str) -> None:
        """Write down what has written nothing itself: it was refused, or there was nothing to change."""
        if not guard.is_audited:
            return
        if not guard.is_recorded and not self._is_one_too_many(guard):
            await self._database.write(audit.write, [guard.row(outcome=outcome)])
        self._recorded.beat()

    def _is_one_too_many(self, guard: Guard) -> bool:
        """Tell whether so many strangers have called that one more would only fill the disk."""
        if guard.caller is not NOBODY or not guard.is_denied:
            return False
        while self._strangers and self._strangers[0] <= guard.at_ms - _MINUTE_MS:
            self._strangers.popleft()
        if len(self._strangers) >= _STRANGERS_MAX:
            return True
        self._strangers.append(guard.at_ms)
        return False

    async def _caller(self, operation: Operation, token: str | None, path: Mapping[str, str], now_ms: int) -> Caller:
        match operation.audience:
            case "public":
                return NOBODY
            case "node":
                return await self._node(token, path["id"])
            case "scraper" if self._metrics_token is not None and join.is_same_secret(token or "", self._metrics_token):
                return SCRAPER
            case _:
                return await self._person(token, now_ms)

    async def _person(self, token: str | None, now_ms: int) -> Caller:
        if self._api_token is None:
            if not self._book.latest.has_tokens:
                return LOCAL
        elif token is not None and join.is_same_secret(token, self._api_token):
            return ROOT
        known = None if token is None else await self._database.read(tokens.caller_of, token, now_ms)
        if known is None:
            raise Problem(
                Code.UNAUTHENTICATED,
                "show a token of this coordinator: set MUSTER_TOKEN to it"
                if token is None
                else "nobody has this token, or it has expired or was revoked: ask an operator for another",
            )
        caller, is_news = known
        if is_news:
            await self._database.write(tokens.used, caller.id, now_ms)
        return caller

    async def _node(self, token: str | None, node_id: str) -> Caller:
        known = None if token is None else await self._database.read(join.node_of_token, token)
        if known is None:
            raise Problem(Code.UNAUTHENTICATED, "no node has this credential: register again")
        if known != node_id:
            raise Problem(Code.FORBIDDEN, "a node's credential is good for its own routes only")
        return node_caller(known)

    async def _authorize(
        self, operation: Operation, guard: Guard, path: Mapping[str, str], request: web.Request
    ) -> None:
        """Ask the policies, but for what is weighed: that is asked where it is granted.

        Raises:
            Problem: `FORBIDDEN`; `NOT_FOUND` for what is not there, or not the caller's.
        """
        if operation.audience == "public" and operation.action in PUBLIC:
            return
        action = ACTIONS.get(operation.action)
        if action is None:
            guard.is_denied = True
            raise Problem(Code.FORBIDDEN, f"{operation.method} {operation.path} has no action that policies know")
        resource = await self._resource(action.subject, guard.caller, path, request)
        if not action.is_weighed:
            guard.take(self._book.latest.policies.decide(guard.caller, action.name, resource), action.name)

    async def _resource(
        self, subject: Subject, caller: Caller, path: Mapping[str, str], request: web.Request
    ) -> Resource:
        if caller.kind == "Node":
            return Resource("Node", caller.id)
        # Nobody else's policies look at what a thing is like: the look-up is spared.
        if caller.tenant_id is None and not self._book.latest.policies.added:
            return WHOLE
        key = path.get("id")
        if subject == "Pool" and key is None:
            key = request.query.get("poolId", DEFAULT_POOL)
        if key is None or subject == "Muster":
            return WHOLE
        resource = await self._database.read(found, subject, key)
        is_owned = subject in {"Reservation", "Series"} and caller.tenant_id is not None
        if is_owned and (resource is None or resource.tenant_id != caller.tenant_id):
            # What is another tenant's is not there: the same words, after the same look.
            raise missing(subject, key)
        return resource or WHOLE


def is_audited(operation: Operation) -> bool:
    """Tell whether the audit log keeps a call: what changes something does. Agents' reports stand in the events."""
    action = ACTIONS.get(operation.action)
    if action is None:
        return operation.method != "GET"
    return action.kind == "change"
