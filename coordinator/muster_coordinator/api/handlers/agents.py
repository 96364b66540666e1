"""What agents call: join, report, and wait for their desired state."""

import asyncio
from typing import Final

from aiohttp import web
from pydantic import Field

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service.nodes import desired as desires
from muster_coordinator.service.nodes import join, join_tokens
from muster_coordinator.service.nodes.report import report
from muster_shared.codec import Count, Request, Text, encode
from muster_shared.errors import Code, Problem, invalid
from muster_shared.time import parse_duration
from muster_shared.wire import Credential, Registration, Report, ReportAnswer

_WAIT_MS_MAX: Final = 60_000  # proxies cut silent calls after a minute
_JITTER_MS: Final = 2_000  # so that a thousand polls that began together do not end together


class DesiredQuery(Request):
    """Which revision the node has, and how long it is ready to wait for a newer one."""

    rev: Count = 0
    wait: Text = Field(default="0ms", description="0ms, or a duration such as 50s")


async def registered(call: Call[Services, Registration, None]) -> Credential:
    """Let a host join."""
    services = call.services
    at, secret, shown = services.clock.moment(), services.clock.new_secret(), call.token or ""
    if shown.startswith(join_tokens.PREFIX):
        credential = await services.database.write(join_tokens.join_by, at, call.body, shown, secret)
    elif services.join_token is None or join.is_same_secret(shown, services.join_token):
        credential = await services.database.write(join.register, at, call.body, secret)
    else:
        raise Problem(
            Code.UNAUTHENTICATED,
            "joining takes a join token: set `join_token` at the agent to one that `muster join-tokens create` made",
        )
    services.changed.beat()
    return credential


async def reported(call: Call[Services, Report, None]) -> ReportAnswer:
    """Take a report, and carry on every reservation that it concerns."""
    services = call.services
    heard = await services.database.write(report, services.clock.moment(), call.path["id"], call.body)
    if not heard.answer.accepted:
        services.counts.fenced("report")
    if heard.old_generations:
        services.counts.fenced("generation", heard.old_generations)
    if heard.is_news:
        await services.advance_heard(heard.reservation_ids)
    return heard.answer


async def desired(call: Call[Services, None, DesiredQuery]) -> web.StreamResponse:
    """Answer the node's desired state as soon as it is newer than the node's, or 304 after the wait."""
    services, node_id = call.services, call.path["id"]
    if not await _is_newer(call, node_id):
        return web.Response(status=304)
    # Every grant is stored before the reply leaves; a vanished caller must not undo half of it.
    state = await asyncio.shield(services.database.write(desires.desired, services.clock.moment(), node_id))
    return web.Response(body=encode(state), content_type="application/json")


async def _is_newer(call: Call[Services, None, DesiredQuery], node_id: str) -> bool:
    services = call.services
    wait_ms = _wait_ms(call.query.wait)
    if await services.database.read(desires.desired_rev, node_id) > call.query.rev:
        return True
    if wait_ms == 0:
        return False
    jitter_ms = services.clock.moment().chance.randrange(_JITTER_MS)
    waiting = asyncio.create_task(services.revs.wait_above(node_id, call.query.rev, max(1, wait_ms - jitter_ms) / 1000))
    closing = asyncio.create_task(call.closing.wait())
    try:
        await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.done() and waiting.result()
    finally:
        waiting.cancel()
        closing.cancel()


def _wait_ms(text: str) -> int:
    if text in {"0", "0s", "0ms"}:
        return 0
    try:
        return min(parse_duration(text), _WAIT_MS_MAX)
    except ValueError as error:
        raise invalid("wait", str(error)) from None
