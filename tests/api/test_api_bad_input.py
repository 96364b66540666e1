"""Bad input is refused with a stable code and the path of the field, and nothing of it is stored."""

import asyncio
import json
from typing import Any

from muster_shared.time import MS_MAX
from tests.support.coordinator_api import Api
from tests.support.service_world import START_MS

GOOD: dict[str, Any] = {"tenantId": "acme", "devices": [{"count": 8}], "duration": "1h"}
NUL = "\0"

Case = tuple[dict[str, Any], str]
INVALID: dict[str, Case] = {
    "an unknown field": ({"gpus": 8}, "gpus"),
    "an unknown field inside": ({"devices": [{"count": 1, "kind": "gpu"}]}, "devices.0.kind"),
    "no tenant": ({"tenantId": None}, "tenantId"),
    "a tenant of the wrong type": ({"tenantId": 7}, "tenantId"),
    "a tenant with a path in it": ({"tenantId": "../acme"}, "tenantId"),
    "a tenant with a NUL": ({"tenantId": f"ac{NUL}me"}, "tenantId"),
    "a name with a NUL": ({"name": f"ac{NUL}me"}, "name"),
    "a name that turns the line": ({"name": "x\u202eemca"}, "name"),
    "a pool with a NUL": ({"poolId": NUL}, "poolId"),
    "no devices": ({"devices": []}, "devices"),
    "devices that are no list": ({"devices": {"count": 1}}, "devices"),
    "five kinds of devices": ({"devices": [{"count": 1}] * 5}, "devices"),
    "three islands of one node": ({"devices": [{"count": 1, "topology": "nvlink-all"}] * 3}, "devices"),
    "a profile of a whole GPU": ({"devices": [{"count": 1, "profile": "1g.10gb"}]}, "devices.0.profile"),
    "a profile in other words": ({"devices": [{"class": "mig", "count": 1, "profile": "1G 10"}]}, "devices.0.profile"),
    "instances over NVLink": (
        {"devices": [{"class": "mig", "count": 2, "topology": "nvlink-all"}]},
        "devices.0.topology",
    ),
    "shares over NVLink": (
        {"devices": [{"count": 1}, {"class": "slot", "count": 2, "topology": "nvlink-all"}]},
        "devices.1.topology",
    ),
    "a gang that segments do not divide": (
        {"gang": {"size": 5, "segment": {"size": 2, "topologyKey": "rack"}}},
        "gang.segment.size",
    ),
    "a segment larger than the gang": (
        {"gang": {"size": 1, "segment": {"size": 2, "topologyKey": "rack"}}},
        "gang.segment.size",
    ),
    "a segment of none": ({"gang": {"size": 2, "segment": {"size": 0, "topologyKey": "rack"}}}, "gang.segment.size"),
    "a segment of no label": ({"gang": {"size": 2, "segment": {"size": 1}}}, "gang.segment.topologyKey"),
    "a key twice": (
        {"gang": {"size": 2, "topologyKey": "rack", "topologyKeys": [{"key": "rack"}]}},
        "gang.topologyKeys",
    ),
    "a key that is asked of the segments too": (
        {"gang": {"size": 2, "topologyKey": "rack", "segment": {"size": 1, "topologyKey": "rack"}}},
        "gang.topologyKeys",
    ),
    "a key in a mode of its own": (
        {"gang": {"size": 2, "topologyKeys": [{"key": "rack", "mode": "hoped"}]}},
        "gang.topologyKeys.0.mode",
    ),
    "a negative count": ({"devices": [{"count": -1}]}, "devices.0.count"),
    "a count of zero": ({"devices": [{"count": 0}]}, "devices.0.count"),
    "a count in words": ({"devices": [{"count": "8"}]}, "devices.0.count"),
    "half a device": ({"devices": [{"count": 0.5}]}, "devices.0.count"),
    "a boolean for a count": ({"devices": [{"count": True}]}, "devices.0.count"),
    "a huge count": ({"devices": [{"count": 2**70}]}, "devices.0.count"),
    "huge memory": ({"devices": [{"count": 1, "memoryGib": 2**53}]}, "devices.0.memoryGib"),
    "a class that is not offered": ({"devices": [{"count": 1, "class": "tpu"}]}, "devices.0.class"),
    "a gang of none": ({"gang": {"size": 0}}, "gang.size"),
    "a gang of minus one": ({"gang": {"size": -1}}, "gang.size"),
    "a gang of too many": ({"gang": {"size": 2**31}}, "gang.size"),
    "a key that is no label": ({"gang": {"size": 2, "topologyKey": "rack row"}}, "gang.topologyKey"),
    "a window that ends before it starts": ({"start": "+2h", "duration": None, "end": "+1h"}, "end"),
    "an empty window": ({"start": "+2h", "duration": None, "end": "+2h"}, "end"),
    "a start in the past": ({"start": START_MS - 1}, "start"),
    "a start in the past, in words": ({"start": "2020-01-01T00:00:00Z"}, "start"),
    "a start without an offset": ({"start": "2030-01-01T00:00:00"}, "start"),
    "a start after the end of time": ({"start": 2**53}, "start"),
    "an end before a start at the end of time": ({"start": MS_MAX, "duration": None, "end": 5}, "end"),
    "a huge start": ({"start": 2**70}, "start"),
    "a negative start": ({"start": -5}, "start"),
    "a start that is no instant": ({"start": "tomorrow"}, "start"),
    "a start of another type": ({"start": True}, "start"),
    "a start too far ahead": ({"start": "+400d"}, "start"),
    "no length": ({"duration": None}, "duration"),
    "two lengths": ({"end": "+2h"}, "duration"),
    "a length of zero": ({"duration": "0s"}, "duration"),
    "a negative length": ({"duration": "-1h"}, "duration"),
    "a length that is a number": ({"duration": 3600}, "duration"),
    "a length beyond the pool's": ({"duration": "91d"}, "duration"),
    "a latest start before the start": ({"start": "+2h", "latestStart": "+1h"}, "latestStart"),
    "a selector that is no label": ({"nodeSelector": {"a b": "c"}}, "nodeSelector.a b"),
    "a key with a blank": ({"idempotencyKey": "a b"}, "idempotencyKey"),
}
RAW: dict[str, bytes] = {
    "no JSON": b"{",
    "no object": b"[]",
    "not a number": json.dumps(GOOD).encode().replace(b"8", b"NaN"),
    "infinity": json.dumps(GOOD).encode().replace(b"8", b"1e400"),
    "a field twice": json.dumps(GOOD).encode().replace(b"{", b'{"tenantId": "other", ', 1),
    "a device's field twice": json.dumps(GOOD).encode().replace(b'"count": 8', b'"count": 1, "count": 8'),
    "half a character": json.dumps({**GOOD, "name": "x"}).encode().replace(b'"x"', b'"\\ud800"'),
    "bytes that are no text": json.dumps({**GOOD, "name": "x"}).encode().replace(b'"x"', b'"\xff"'),
    "nothing": b"",
    "a deep well": b"[" * 100_000,
}


def but(changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**GOOD, **changes}.items() if value is not None}


async def test_what_is_wrong_with_a_request_is_named_by_its_path_and_nothing_is_stored(api: Api) -> None:
    """S07 among them: a gang that its segments do not divide spins no scheduler, and is charged for nothing."""
    await api.join("a1")
    before = await api.rows()
    found: dict[str, tuple[int, str, str]] = {}
    for route in ("/v1/reservations", "/v1/capacity/preview"):
        for name, (changes, _) in INVALID.items():
            status, problem = await api.call("POST", route, but(changes))
            found[f"{name} at {route}"] = (status, problem.get("code"), problem.get("errors", [{}])[0].get("path"))

    assert found == {
        f"{name} at {route}": (400, "INVALID_INPUT", path)
        for route in ("/v1/reservations", "/v1/capacity/preview")
        for name, (_, path) in INVALID.items()
    }
    assert await api.rows() == before


async def test_what_is_no_message_is_refused_and_nothing_is_stored(api: Api) -> None:
    await api.join("a1")
    before = await api.rows()
    found = {}
    for name, body in RAW.items():
        status, problem = await api.call("POST", "/v1/reservations", body)
        found[name] = (status, problem["code"])

    assert found == dict.fromkeys(RAW, (400, "INVALID_INPUT"))
    assert await api.rows() == before


async def test_what_does_not_exist_is_not_found_under_every_route(api: Api) -> None:
    await api.join("a1")
    before = await api.rows()
    unknown = [
        ("POST", "/v1/reservations", but({"poolId": "nowhere"})),
        ("POST", "/v1/capacity/preview", but({"poolId": "nowhere"})),
        ("GET", "/v1/reservations?poolId=nowhere", None),
        ("GET", "/v1/nodes?poolId=nowhere", None),
        ("GET", "/v1/pools/nowhere", None),
        ("GET", "/v1/nodes/nowhere", None),
        ("POST", "/v1/nodes/nowhere/cordon", {}),
        ("POST", "/v1/nodes/nowhere/uncordon", {}),
        ("POST", "/v1/nodes/nowhere/drain", {}),
        ("POST", "/v1/nodes/nowhere/fence", {}),
        ("PUT", "/v1/nodes/nowhere/labels", {"labels": {"rack": "r1"}}),
        *(("POST", f"/v1/reservations/{one}/{act}", None) for one in ("rsv_x", "%00") for act in ("cancel", "release")),
        ("GET", "/v1/reservations/rsv_x", None),
        ("GET", "/v1/reservations/%00", None),
        ("GET", "/v1/reservations/%ff%fe", None),
        ("GET", "/v1/nodes/%00", None),
        ("GET", "/v1/pools/a%00", None),
        ("GET", "/v1/nowhere", None),
        ("POST", "/v1/nodes/register", {"name": "b1", "machineId": "machine-b1", "agentVersion": "1", "pool": "x"}),
    ]
    found = {}
    for method, path, body in unknown:
        status, problem = await api.call(method, path, body)
        found[method, path] = (status, problem["code"])

    assert found == {(method, path): (404, "NOT_FOUND") for method, path, _ in unknown}
    assert await api.rows() == before


async def test_a_topology_key_that_no_node_has_is_no_mistake_but_pending(api: Api) -> None:
    await api.join("a1")

    status, asked = await api.call("POST", "/v1/reservations", but({"gang": {"size": 2, "topologyKey": "rack"}}))

    assert (status, asked["state"], asked["condition"]["reason"]) == (201, "pending", "neverFits")
    assert "fits in one rack" in asked["condition"]["message"]


async def test_operators_mistakes_are_named_too(api: Api) -> None:
    await api.join("a1")
    before = await api.rows()
    wrong = {
        ("PUT", "/v1/nodes/a1/labels", '{"labels": {}}'): "labels",
        ("PUT", "/v1/nodes/a1/labels", '{"labels": {"gpu.model": "x"}}'): "labels.gpu.model",
        ("PUT", "/v1/nodes/a1/labels", '{"labels": {"rack": "r\\u0000"}}'): "labels.rack",
        ("POST", "/v1/nodes/a1/cordon", '{"why": "x"}'): "why",
        ("POST", "/v1/nodes/a1/cordon", '{"reason": "a\\nb"}'): "reason",
        ("POST", "/v1/pools", "{}"): "name",
        ("POST", "/v1/pools", '{"name": "a b"}'): "name",
        ("GET", "/v1/reservations?state=gone", ""): "state",
        ("GET", "/v1/reservations?limit=0", ""): "limit",
        ("GET", "/v1/reservations?limit=99999999999999999999", ""): "limit",
        ("GET", "/v1/reservations?color=red", ""): "color",
        ("GET", "/v1/nodes?limit=x", ""): "limit",
        ("GET", "/v1/events?after=-1", ""): "after",
        ("GET", "/v1/reservations?tenantId=%00", ""): "tenantId",
        ("GET", "/v1/nodes?cursor=%00", ""): "cursor",
    }
    found = {}
    for method, path, body in wrong:
        _, problem = await api.call(method, path, body.encode() if body else None)
        found[method, path, body] = problem["errors"][0]["path"]

    assert found == wrong
    assert await api.rows() == before


async def test_a_pool_that_exists_is_a_conflict(api: Api) -> None:
    status, problem = await api.call("POST", "/v1/pools", {"name": "default"})

    assert (status, problem["code"]) == (409, "CONFLICT")


async def test_a_token_that_is_no_text_is_no_credential(api: Api) -> None:
    node = await api.join("a1")
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"GET /v1/nodes/{node.node_id}/desired HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode()
        + b"Authorization: Bearer \xff\xfe\r\n\r\n"
    )

    answer = await reader.read()
    writer.close()
    await writer.wait_closed()

    assert answer.split(b"\r\n")[0] == b"HTTP/1.1 401 Unauthorized"


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read(api: Api) -> None:
    before = await api.rows()

    status, problem = await api.call("POST", "/v1/reservations", b" " * 300_000 + json.dumps(GOOD).encode())

    assert (status, problem["code"]) == (413, "TOO_LARGE")
    assert await api.rows() == before
