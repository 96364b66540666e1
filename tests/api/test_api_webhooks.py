"""Receivers over HTTP: told of their secret once, of every event in order, and of none that they did not ask for."""

from pathlib import Path
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

from muster_coordinator.clock import SystemClock
from tests.support.coordinator_api import Api, api_on
from tests.support.receiving import Got, Receiver, receiving

INSIDE = ("127.0.0.0/8",)


async def added(api: Api, receiver: Receiver, name: str = "ops", **fields: Any) -> dict[str, Any]:
    status, view = await api.call("POST", "/v1/webhooks", {"name": name, "url": receiver.url, **fields})
    assert status == 201, view
    document: dict[str, Any] = view
    return document


def verified(got: Got, secret: str) -> bool:
    """Tell whether the reference library takes it."""
    try:
        Webhook(secret).verify(got.body, got.headers)
    except WebhookVerificationError:
        return False
    return True


async def test_a_receiver_gets_signed_events_from_then_on(tmp_path: Path) -> None:
    async with api_on(str(tmp_path / "muster.db"), webhook_allow=INSIDE) as api, receiving() as receiver:
        api.clock.ms = SystemClock().moment().ms  # the library looks at the machine's clock
        secret = (await added(api, receiver, types=["node.joined", "node.cordoned"]))["secret"]
        await api.join("n1")
        await api.call("POST", "/v1/nodes/n1/cordon", {"reason": "loud"})
        await receiver.until(2)

    assert [got.event["type"] for got in receiver.got] == ["node.joined", "node.cordoned"]
    assert [got.id for got in receiver.got] == [got.event["id"] for got in receiver.got]
    assert all(verified(got, secret) for got in receiver.got)
