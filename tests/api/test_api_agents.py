"""What agents send: taken whole or refused whole, by each node's own credential."""

import asyncio
import json
from typing import Any

from muster_coordinator.api.routes import OPERATIONS
from muster_shared.codec import encode
from muster_shared.wire import REPORT_BYTES_MAX
from tests.support.coordinator_agent import ScriptedAgent
from tests.support.coordinator_api import Api

DAMAGE: dict[str, dict[str, Any]] = {
    "no boot": {"bootId": None},
    "a sequence in words": {"seq": "7"},
    "a negative sequence": {"seq": -1},
    "a huge sequence": {"seq": 2**70},
    "a boot with a NUL": {"bootId": "a\0b"},
    "a boot that turns the line": {"bootId": "a\u202eb"},
    "too many holds": {"holds": [{"cause": "xid", "sinceMs": 1, "clearsBy": "operator"}] * 257},
    "a hold on no device": {"holds": [{"device": "../x", "cause": "xid", "sinceMs": 1, "clearsBy": "operator"}]},
    "a state that is none": {"assignments": [{"allocationId": "a", "generation": 1, "state": "fine"}]},
    "holds that are no list": {"holds": {}},
}
GPU = {"uuid": "GPU-0001", "pci": "x", "model": "x", "memoryMib": 1}
INVENTORY_DAMAGE: dict[str, dict[str, Any]] = {
    "too many devices": {"gpus": [{**GPU, "uuid": f"GPU-{number:04d}"} for number in range(17)]},
    "a device twice": {"gpus": [GPU, GPU]},
    "a device without a name": {"gpus": [{**GPU, "uuid": ""}]},
    "a model in two lines": {"gpus": [{**GPU, "model": "x\ny"}]},
    "a label that is none": {"labels": {"a b": "c"}},
    "a value with markup": {"labels": {"gpu.model": "<script>"}},
    "too many labels": {"labels": {f"gpu.l{number}": "x" for number in range(65)}},
}


def good(node: ScriptedAgent) -> dict[str, Any]:
    node.fabric = "fabric-new.1"
    document: dict[str, Any] = json.loads(encode(node.next_report()))
    return document


async def test_a_malformed_report_is_refused_and_the_node_stays_as_it_was(api: Api) -> None:
    node = await api.join("a1", fabric="fabric-a.1")
    before = await api.rows()
    report = good(node)
    bodies: dict[str, bytes] = {name: json.dumps({**report, **damage}).encode() for name, damage in DAMAGE.items()}
    for name, damage in INVENTORY_DAMAGE.items():
        bodies[name] = json.dumps({**report, "inventory": {**report["inventory"], **damage}}).encode()
    whole = json.dumps(report).encode()
    nan = whole.replace(b'"seq": 2', b'"seq": NaN')
    bodies |= {"half": whole[: len(whole) // 2], "not a number": nan, "text": b'"x"'}
    found = {}
    for name, body in bodies.items():
        status, problem = await api.call(
            "POST", f"/v1/nodes/{node.node_id}/report", body, **api.credential(node.node_id)
        )
        found[name] = (status, problem["code"])

    assert found == dict.fromkeys(bodies, (400, "INVALID_INPUT"))
    assert await api.rows() == before


async def test_a_report_that_is_too_large_is_refused_and_the_node_stays_as_it_was(api: Api) -> None:
    node = await api.join("a1", fabric="fabric-a.1")
    before = await api.rows()
    body = encode(node.next_report()) + b" " * REPORT_BYTES_MAX

    status, problem = await api.call("POST", f"/v1/nodes/{node.node_id}/report", body, **api.credential(node.node_id))

    assert (status, problem["code"]) == (413, "TOO_LARGE")
    assert await api.rows() == before


async def test_a_compressed_report_is_refused(api: Api) -> None:
    node = await api.join("a1")
    headers = {"Content-Encoding": "gzip", **api.credential(node.node_id)}

    status, problem = await api.call("POST", f"/v1/nodes/{node.node_id}/report", b"\x1f\x8b", **headers)

    assert (status, problem["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_the_largest_numbers_that_a_report_may_carry_are_stored(api: Api) -> None:
    node = await api.join("a1")
    report = good(node)
    for gpu in report["inventory"]["gpus"]:
        gpu |= {"memoryMib": 2**53, "island": 2**53, "numa": 2**53}
    report |= {"seq": 2**53, "appliedRev": 2**52}
    report["holds"] = [{"cause": "xid", "code": 2**53, "sinceMs": 2**53, "clearsBy": "operator"}]

    status, answer = await api.call(
        "POST", f"/v1/nodes/{node.node_id}/report", json.dumps(report).encode(), **api.credential(node.node_id)
    )

    assert (status, answer["accepted"]) == (200, True)


async def test_an_unknown_field_of_a_newer_agent_is_no_reason_to_refuse_it(api: Api) -> None:
    node = await api.join("a1")
    report = {**good(node), "mood": "fine"}

    status, answer = await api.call(
        "POST", f"/v1/nodes/{node.node_id}/report", json.dumps(report).encode(), **api.credential(node.node_id)
    )

    assert (status, answer["accepted"]) == (200, True)


async def test_a_credential_is_good_for_its_own_routes_only(api: Api) -> None:
    mine, other = await api.join("a1"), await api.join("a2")
    before = await api.rows()
    routes = [one for one in OPERATIONS if one.audience == "node"]
    assert len(routes) >= 2
    found = []
    for route in routes:
        body = encode(other.next_report()) if route.body else None
        for node_id, headers in (
            (other.node_id, api.credential(mine.node_id)),
            ("node_unknown", api.credential(mine.node_id)),
            (mine.node_id, {}),
            (mine.node_id, {"Authorization": "Bearer guessed"}),
            (mine.node_id, {"Authorization": "Basic YTpi"}),
        ):
            status, problem = await api.call(route.method, route.path.format(id=node_id), body, **headers)
            found.append((status, problem["code"]))

    refused = [(403, "FORBIDDEN")] * 2 + [(401, "UNAUTHENTICATED")] * 3
    assert found == refused * len(routes)
    assert await api.rows() == before


async def test_joining_again_ends_the_former_credential(api: Api) -> None:
    node = await api.join("a1")
    former = api.credential(node.node_id)
    again = await api.join("a1")

    path = f"/v1/nodes/{node.node_id}/desired"
    statuses = [(await api.call("GET", path, **headers))[0] for headers in (former, api.credential(node.node_id))]

    assert (again.node_id, statuses) == (node.node_id, [401, 200])


async def test_another_machine_does_not_take_a_name_or_an_identity(api: Api) -> None:
    await api.join("a1")
    before = await api.rows()
    clones: list[dict[str, Any]] = [
        {"name": "a1", "machineId": "machine-zz"},
        {"name": "a2", "machineId": "machine-a1"},
        {"name": "a1", "machineId": "machine-a1", "gpus": ["GPU-other-0001"]},
    ]
    found = [(await api.call("POST", "/v1/nodes/register", {"agentVersion": "1", **clone}))[0] for clone in clones]

    assert found == [409, 409, 409]
    assert await api.rows() == before


async def test_a_long_poll_answers_as_soon_as_there_is_something_to_do(api: Api) -> None:
    node = await api.join("a1")
    headers = api.credential(node.node_id)
    rev = (await api.desired_of(node.node_id)).rev
    poll = asyncio.create_task(api.call("GET", f"/v1/nodes/{node.node_id}/desired?rev={rev}&wait=50s", **headers))
    unchanged, _ = await api.call("GET", f"/v1/nodes/{node.node_id}/desired?rev={rev}", **headers)

    await api.call("POST", "/v1/reservations", {"tenantId": "acme", "devices": [{"count": 8}], "duration": "1h"})
    status, desired = await poll

    assert (unchanged, status, desired["rev"]) == (304, 200, rev + 1)
    (told,) = desired["assignments"]
    assert (told["tenantId"], len(told["devices"]), told["startsInMs"], told["endsInMs"]) == ("acme", 8, 0, 3_600_000)
