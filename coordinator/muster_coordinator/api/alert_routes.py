"""The part of the HTTP API that tells others: receivers of webhooks."""

from typing import Final

from muster_coordinator.api.handlers import webhooks
from muster_coordinator.api.operation import Operation
from muster_coordinator.service.bodies import Page, Reason
from muster_coordinator.service.outward.bodies import (
    Replayed,
    ReplayRequest,
    WebhookRequest,
    WebhookSecret,
    WebhookTest,
    WebhookView,
)
from muster_shared.errors import Code

_MISSING: Final = (Code.NOT_FOUND,)
_REFUSED: Final = (Code.NOT_FOUND, Code.CONFLICT)

ALERT_OPERATIONS: Final = (
    Operation(
        "POST",
        "/v1/webhooks",
        "Tell a receiver of events",
        webhooks.created,
        body=WebhookRequest,
        answer=WebhookSecret,
        status=201,
        errors=(Code.CONFLICT,),
        audience="operator",
        action="compute:webhook:create",
    ),
    Operation(
        "GET",
        "/v1/webhooks",
        "List receivers",
        webhooks.listed,
        answer=Page,
        audience="operator",
        action="compute:webhook:list",
    ),
    Operation(
        "GET",
        "/v1/webhooks/{id}",
        "Show a receiver",
        webhooks.shown,
        answer=WebhookView,
        errors=_MISSING,
        audience="operator",
        action="compute:webhook:read",
    ),
    Operation(
        "DELETE",
        "/v1/webhooks/{id}",
        "Forget a receiver, and what was on its way to it",
        webhooks.removed,
        query=webhooks.WebhookRemoval,
        errors=_MISSING,
        audience="operator",
        action="compute:webhook:remove",
    ),
    Operation(
        "POST",
        "/v1/webhooks/{id}/test",
        "Send a ping right now",
        webhooks.tested,
        answer=WebhookTest,
        errors=_MISSING,
        audience="operator",
        action="compute:webhook:test",
    ),
    Operation(
        "POST",
        "/v1/webhooks/{id}/rotate",
        "Change a receiver's secret; the former one signs beside it",
        webhooks.rotated,
        answer=WebhookSecret,
        errors=_REFUSED,
        audience="operator",
        action="compute:webhook:rotate",
    ),
    Operation(
        "DELETE",
        "/v1/webhooks/{id}/former-secret",
        "Sign with the new secret alone",
        webhooks.finished,
        answer=WebhookView,
        errors=_MISSING,
        audience="operator",
        action="compute:webhook:settle",
    ),
    Operation(
        "POST",
        "/v1/webhooks/{id}/enable",
        "Send to a receiver again",
        webhooks.enabled,
        body=Reason,
        answer=WebhookView,
        errors=_MISSING,
        audience="operator",
        action="compute:webhook:enable",
    ),
    Operation(
        "POST",
        "/v1/webhooks/{id}/disable",
        "Stop sending to a receiver",
        webhooks.disabled,
        body=Reason,
        answer=WebhookView,
        errors=_MISSING,
        audience="operator",
        action="compute:webhook:disable",
    ),
    Operation(
        "GET",
        "/v1/webhooks/{id}/deliveries",
        "What was or is to be sent to a receiver",
        webhooks.deliveries,
        query=webhooks.DeliveryQuery,
        answer=Page,
        errors=_MISSING,
        audience="operator",
        action="compute:webhook:deliveries",
    ),
    Operation(
        "POST",
        "/v1/webhooks/{id}/replay",
        "Send dead letters, or events of the log, again",
        webhooks.replayed,
        body=ReplayRequest,
        answer=Replayed,
        errors=_MISSING,
        audience="operator",
        action="compute:webhook:replay",
    ),
)
