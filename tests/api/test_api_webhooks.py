"""Receivers over HTTP: told of their secret once, of every event in order, and of none that they did not ask for."""

from pathlib import Path
from typing import Any

import pytest
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


async def test_a_secret_is_shown_once_and_changed_while_both_sign(tmp_path: Path) -> None:
    async with api_on(str(tmp_path / "muster.db"), webhook_allow=INSIDE) as api, receiving() as receiver:
        api.clock.ms = SystemClock().moment().ms
        old = (await added(api, receiver))["secret"]
        _, shown = await api.call("GET", "/v1/webhooks/ops")
        _, page = await api.call("GET", "/v1/webhooks")
        status, rotated = await api.call("POST", "/v1/webhooks/ops/rotate")
        again, _ = await api.call("POST", "/v1/webhooks/ops/rotate")
        await api.call("POST", "/v1/webhooks/ops/test")
        finished, settled = await api.call("DELETE", "/v1/webhooks/ops/former-secret")
        await api.call("POST", "/v1/webhooks/ops/test")

    new = rotated["secret"]
    both, one = (got for got in receiver.got if got.event["type"] == "webhook.ping")
    assert "secret" not in shown
    assert "secret" not in page["items"][0]
    assert (status, again, finished) == (200, 409, 200)
    assert (rotated["rotating"], settled["rotating"]) == (True, False)
    assert [verified(both, secret) for secret in (old, new)] == [True, True]
    assert [verified(one, secret) for secret in (old, new)] == [False, True]


async def test_a_ping_tells_what_the_receiver_makes_of_it(tmp_path: Path) -> None:
    async with api_on(str(tmp_path / "muster.db"), webhook_allow=INSIDE) as api, receiving() as receiver:
        await added(api, receiver, types=["node."])
        _, taken = await api.call("POST", "/v1/webhooks/ops/test")
        receiver.status = 503
        _, refused = await api.call("POST", "/v1/webhooks/ops/test")

    assert (taken["delivered"], taken["status"]) == (True, 204)
    assert (refused["delivered"], refused["status"], refused["error"]) == (False, 503, "it answered 503")
    assert [got.id for got in receiver.got] == [taken["eventId"], refused["eventId"]]


async def test_a_receiver_that_says_410_is_switched_off(tmp_path: Path) -> None:
    async with api_on(str(tmp_path / "muster.db"), webhook_allow=INSIDE) as api, receiving() as receiver:
        receiver.status = 410
        await added(api, receiver, types=["node.joined"])
        headers = {"Accept": "text/event-stream"}
        async with api.client.get("/v1/events", headers=headers, params={"type": "webhook.disabled"}) as stream:
            await api.join("n1")
            async for line in stream.content:
                if line.startswith(b"data: "):
                    break
        _, view = await api.call("GET", "/v1/webhooks/ops")

    assert (view["enabled"], view["waiting"]) == (False, 1)
    assert b"410 Gone" in line


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "a URL inside": ({"name": "x", "url": "https://169.254.169.254/latest"}, 400, "url"),
    "no TLS": ({"name": "x", "url": "http://hooks.example/"}, 400, "url"),
    "a password": ({"name": "x", "url": "https://u:p@hooks.example/"}, 400, "url"),
    "no URL": ({"name": "x"}, 400, "url"),
    "no name": ({"url": "https://hooks.example/"}, 400, "name"),
    "a name that is none": ({"name": "a b", "url": "https://hooks.example/"}, 400, "name"),
    "no event type": ({"name": "x", "url": "https://hooks.example/", "types": ["node.", "all"]}, 400, "types.1"),
    "an unknown field": ({"name": "x", "url": "https://hooks.example/", "secret": "mine"}, 400, "secret"),
}


@pytest.mark.parametrize("wrong", REFUSED)
async def test_what_makes_no_receiver_is_refused_and_changes_nothing(api: Api, wrong: str) -> None:
    body, expected, path = REFUSED[wrong]
    before = await api.rows()

    status, problem = await api.call("POST", "/v1/webhooks", body)

    assert (status, problem["errors"][0]["path"]) == (expected, path)
    assert await api.rows() == before


async def test_a_receiver_is_found_by_name_and_id_until_it_is_removed(api: Api) -> None:
    body = {"name": "ops", "url": "https://hooks.example/"}
    _, made = await api.call("POST", "/v1/webhooks", body)
    taken, _ = await api.call("POST", "/v1/webhooks", body)
    shown = [(await api.call("GET", f"/v1/webhooks/{name}"))[1]["id"] for name in ("ops", made["id"])]
    gone = [await api.call(method, f"/v1/webhooks/ops{rest}") for method, rest in [("DELETE", ""), *ASKED]]

    assert taken == 409
    assert shown == [made["id"]] * 2
    assert [status for status, _ in gone] == [204] + [404] * len(ASKED)
    assert all("muster webhooks" in problem["detail"] for status, problem in gone if status == 404)


ASKED = [
    ("GET", ""),
    ("DELETE", ""),
    ("POST", "/test"),
    ("POST", "/rotate"),
    ("DELETE", "/former-secret"),
    ("POST", "/enable"),
    ("POST", "/disable"),
    ("GET", "/deliveries"),
    ("POST", "/replay"),
]


async def test_deliveries_come_in_pages_the_newest_first(api: Api) -> None:
    await api.call("POST", "/v1/webhooks", {"name": "ops", "url": "https://no-such-host.invalid/", "types": ["node."]})
    for name in ("n1", "n2", "n3"):
        await api.join(name)
    headers = {"Accept": "text/event-stream"}
    async with api.client.get("/v1/events", headers=headers, params={"type": "node.inventory_changed"}) as stream:
        seen = 0
        async for line in stream.content:
            seen += line.startswith(b"id: ")
            if seen == 3:
                break

    _, first = await api.call("GET", "/v1/webhooks/ops/deliveries?limit=4&state=waiting")
    _, rest = await api.call("GET", f"/v1/webhooks/ops/deliveries?limit=4&cursor={first['nextCursor']}")
    wrong = [await api.call("GET", f"/v1/webhooks/ops/deliveries?cursor={one}") for one in ("x", "-1", str(10**18))]

    seqs = [item["seq"] for item in first["items"] + rest["items"]]
    assert (len(seqs), seqs) == (6, sorted(seqs, reverse=True))
    assert "nextCursor" not in rest
    assert [status for status, _ in wrong] == [400, 400, 400]


async def test_nothing_of_receivers_is_for_who_has_no_token(tmp_path: Path) -> None:
    async with api_on(str(tmp_path / "muster.db"), api_token="operators-token-00") as api:
        statuses = {(await api.call(method, f"/v1/webhooks/ops{rest}"))[0] for method, rest in ASKED}

    assert statuses == {401}
