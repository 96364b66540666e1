"""Receivers of webhooks, for operators."""

import re
from typing import Annotated, Final, Literal

from pydantic import Field

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.core.webhook.signature import shown_secret
from muster_coordinator.service.bodies import EventView, Page, Reason
from muster_coordinator.service.look import PAGE_MAX
from muster_coordinator.service.outward import webhooks
from muster_coordinator.service.outward.bodies import (
    Replayed,
    ReplayRequest,
    WebhookRequest,
    WebhookSecret,
    WebhookTest,
    WebhookView,
)
from muster_shared.codec import Count, Request, Text
from muster_shared.errors import invalid

_SEQ: Final = re.compile(r"[0-9]{1,16}")  # no longer than any database counts


class DeliveryQuery(Request):
    """Which deliveries, and how many at once."""

    state: Literal["waiting", "delivered", "dead"] | None = None
    limit: Annotated[Count, Field(ge=1, le=PAGE_MAX)] = 100  # bounds beside a default would not be kept
    cursor: Text | None = None


class WebhookRemoval(Request):
    """Why a receiver is removed."""

    reason: Text | None = Field(default=None, description="Kept with the event")


async def created(call: Call[Services, WebhookRequest, None]) -> WebhookSecret:
    """Make a receiver; its secret is shown this once."""
    services = call.services
    random, inside = services.clock.new_secret(), services.post.inside
    webhook_id = await services.database.write(webhooks.create, services.clock.moment(), call.body, random, inside)
    services.recorded.beat()
    return await _with_secret(services, webhook_id)


async def listed(call: Call[Services, None, None]) -> Page:
    """List receivers by name."""
    return Page(items=await call.services.database.read(webhooks.listed))


async def shown(call: Call[Services, None, None]) -> WebhookView:
    """Show one receiver, by id or name."""
    return await call.services.database.read(webhooks.shown, call.path["id"])


async def rotated(call: Call[Services, None, None]) -> WebhookSecret:
    """Give a receiver a new secret, shown this once; the former one signs beside it."""
    services = call.services
    random = services.clock.new_secret()
    await services.database.write(webhooks.rotate, services.clock.moment(), call.path["id"], random)
    services.recorded.beat()
    return await _with_secret(services, call.path["id"])


async def finished(call: Call[Services, None, None]) -> WebhookView:
    """Forget a receiver's former secret."""
    services = call.services
    await services.database.write(webhooks.finish, services.clock.moment(), call.path["id"])
    services.recorded.beat()
    return await shown(call)


async def enabled(call: Call[Services, Reason, None]) -> WebhookView:
    """Send to a receiver again."""
    return await _switched(call, on=True)


async def disabled(call: Call[Services, Reason, None]) -> WebhookView:
    """Stop sending to a receiver."""
    return await _switched(call, on=False)


async def removed(call: Call[Services, None, WebhookRemoval]) -> None:
    """Forget a receiver."""
    services = call.services
    await services.database.write(webhooks.remove, services.clock.moment(), call.path["id"], call.query.reason)
    services.recorded.beat()


async def tested(call: Call[Services, None, None]) -> WebhookTest:
    """Send a ping right now, and tell what came of it."""
    services = call.services
    webhook_id, url, secrets = await services.database.read(webhooks.secrets_of, call.path["id"])
    at = services.clock.moment()
    ping = EventView(id=at.new_id("evt"), seq=0, type="webhook.ping", at=at.ms, subject=webhook_id, version=0, data={})
    verdict = await services.post.send(url, secrets, ping, at.ms)
    return WebhookTest(delivered=verdict.error is None, status=verdict.status, error=verdict.error, event_id=ping.id)


async def deliveries(call: Call[Services, None, DeliveryQuery]) -> Page:
    """List what was or is to be sent to a receiver, the newest event first."""
    query = call.query
    items = await call.services.database.read(
        webhooks.deliveries, call.path["id"], state=query.state, before=_number(query.cursor), limit=query.limit
    )
    return Page(items=items, next_cursor=str(items[-1].seq) if len(items) == query.limit else None)


async def replayed(call: Call[Services, ReplayRequest, None]) -> Replayed:
    """Queue dead letters, or events of the log, again."""
    services = call.services
    queued = await services.database.write(webhooks.replay, services.clock.moment(), call.path["id"], call.body)
    services.recorded.beat()
    return Replayed(queued=queued)


def _number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not _SEQ.fullmatch(cursor):
        raise invalid("cursor", "not one that a page of this list gave")
    return int(cursor)


async def _switched(call: Call[Services, Reason, None], *, on: bool) -> WebhookView:
    services = call.services
    at, reason = services.clock.moment(), call.body.reason
    await services.database.write(webhooks.enable, at, call.path["id"], reason, enabled=on)
    services.recorded.beat()
    return await services.database.read(webhooks.shown, call.path["id"])


async def _with_secret(services: Services, name: str) -> WebhookSecret:
    view = await services.database.read(webhooks.shown, name)
    _, _, (secret, *_) = await services.database.read(webhooks.secrets_of, name)
    return WebhookSecret(**dict(view), secret=shown_secret(secret))
