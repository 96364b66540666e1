"""Tokens, policies, and the audit log."""

from typing import Annotated, Final, Literal

from aiohttp import hdrs, web
from pydantic import Field

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service.access import audit, policies, tokens
from muster_coordinator.service.access.bodies import (
    PolicyAnswer,
    PolicyQuestion,
    PolicyRequest,
    PolicyView,
    TokenRequest,
    TokenSecret,
    TokenView,
    VerifiedView,
)
from muster_coordinator.service.bodies import Page, Reason, WhenText
from muster_coordinator.service.look import PAGE_MAX
from muster_coordinator.service.nodes import join_tokens
from muster_coordinator.service.nodes.join_bodies import JoinTokenRequest, JoinTokenSecret, JoinTokenView
from muster_coordinator.service.when import instant
from muster_shared.codec import Count, Request, Text, encode
from muster_shared.errors import invalid

NDJSON: Final = "application/x-ndjson"


class TokenQuery(Request):
    """Which tokens."""

    all: bool = Field(default=False, description="Those that are over, too")


class PolicyRemoval(Request):
    """Why a policy is taken back."""

    reason: Text | None = Field(default=None, description="Kept with the event")


class AuditQuery(Request):
    """Which rows, and how many at once."""

    actor: Text | None = Field(default=None, description="Such as user:ada, service:root, node:node_01k...")
    action: Text | None = Field(default=None, description="An action, or a part that ends in a colon: compute:node:")
    object: Text | None = Field(default=None, description="The id or name that it was about")
    decision: Literal["allow", "deny"] | None = None
    since: WhenText | None = Field(default=None, description="RFC 3339 or epoch ms")
    limit: Annotated[Count, Field(ge=1, le=PAGE_MAX)] = 100  # bounds beside a default would not be kept
    cursor: Text | None = None


async def token_created(call: Call[Services, TokenRequest, None]) -> TokenSecret:
    """Make a token; what its bearer shows is told this once."""
    services = call.services
    secret = tokens.PREFIX + services.clock.new_secret()
    view = await services.database.write(
        tokens.create,
        services.clock.moment(),
        call.body,
        secret,
        call.guard.caller.actor,
        has_root=services.has_root,
    )
    await _look_again(services)
    return TokenSecret(**dict(view), token=secret)


async def tokens_listed(call: Call[Services, None, TokenQuery]) -> Page:
    """List tokens by name."""
    at = call.services.clock.moment()
    return Page(items=await call.services.database.read(tokens.listed, at, everything=call.query.all))


async def token_revoked(call: Call[Services, Reason, None]) -> TokenView:
    """End a token; the next call that shows it is refused."""
    services = call.services
    at, reason = services.clock.moment(), call.body.reason
    view = await services.database.write(tokens.revoke, at, call.path["id"], reason, has_root=services.has_root)
    services.recorded.beat()
    return view


async def join_token_created(call: Call[Services, JoinTokenRequest, None]) -> JoinTokenSecret:
    """Make a join token; what its host shows is told this once."""
    services = call.services
    secret = join_tokens.PREFIX + services.clock.new_secret()
    view = await services.database.write(join_tokens.create, services.clock.moment(), call.body, secret)
    services.recorded.beat()
    return JoinTokenSecret(**dict(view), token=secret)


async def join_tokens_listed(call: Call[Services, None, TokenQuery]) -> Page:
    """List join tokens."""
    at = call.services.clock.moment()
    return Page(items=await call.services.database.read(join_tokens.listed, at, everything=call.query.all))


async def join_token_revoked(call: Call[Services, Reason, None]) -> JoinTokenView:
    """End a join token that nobody has used."""
    services = call.services
    at, reason = services.clock.moment(), call.body.reason
    view = await services.database.write(join_tokens.revoke, at, call.path["id"], reason)
    services.recorded.beat()
    return view


async def policy_added(call: Call[Services, PolicyRequest, None]) -> PolicyView:
    """Add a policy, or change one; it holds from the next decision on."""
    services = call.services
    view = await services.database.write(policies.add, services.clock.moment(), call.body)
    await _look_again(services)
    return view


async def policies_listed(call: Call[Services, None, None]) -> Page:
    """List policies, added ones first."""
    return Page(items=await call.services.database.read(policies.listed))


async def policy_shown(call: Call[Services, None, None]) -> PolicyView:
    """Show one policy with its text."""
    return await call.services.database.read(policies.shown, call.path["id"])


async def policy_removed(call: Call[Services, None, PolicyRemoval]) -> None:
    """Take a policy back."""
    services = call.services
    await services.database.write(policies.remove, services.clock.moment(), call.path["id"], call.query.reason)
    await _look_again(services)


async def policy_tested(call: Call[Services, PolicyQuestion, None]) -> PolicyAnswer:
    """Answer what the policies say to a call that nobody makes."""
    services = call.services
    return await services.database.read(policies.test, services.clock.moment(), call.body, services.book)


async def audit_listed(call: Call[Services, None, AuditQuery]) -> Page | web.StreamResponse:
    """Answer a page of the audit log, or with `Accept: application/x-ndjson` all of it, a row a line."""
    query = call.query
    wanted = audit.Wanted(
        actor=query.actor,
        action=query.action,
        subject=query.object,
        decision=query.decision,
        since_ms=instant("since", query.since, call.services.clock.moment().ms),
    )
    after = _place(query.cursor)
    if NDJSON in call.http.headers.get(hdrs.ACCEPT, ""):
        return await _exported(call, wanted, after)
    items = await call.services.database.read(audit.listed, wanted, after=after, limit=query.limit)
    return Page(items=items, next_cursor=str(items[-1].seq) if len(items) == query.limit else None)


async def audit_verified(call: Call[Services, None, None]) -> VerifiedView:
    """Walk the whole chain."""
    return await call.services.database.read(audit.verify)


async def _exported(call: Call[Services, None, AuditQuery], wanted: audit.Wanted, after: int) -> web.StreamResponse:
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: NDJSON})
    await response.prepare(call.http)
    while True:
        items = await call.services.database.read(audit.listed, wanted, after=after, limit=PAGE_MAX)
        await response.write(b"".join(encode(item) + b"\n" for item in items))
        if len(items) < PAGE_MAX:
            return response
        after = items[-1].seq


async def _look_again(services: Services) -> None:
    services.recorded.beat()
    await services.database.read(services.book.current)


def _place(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdecimal():
        raise invalid("cursor", "not one that a page of this list gave")
    return int(cursor)
