"""Cutting GPUs into shares, and removing nodes, over HTTP."""

import json

import pytest

from tests.support.coordinator_api import Api

SLOT = {"tenantId": "acme", "devices": [{"class": "slot", "count": 2}], "duration": "1h"}
WHOLE = {"tenantId": "other", "devices": [{"count": 1}], "duration": "1h"}


async def test_a_gpu_that_is_cut_is_shared_and_one_that_is_not_stays_whole(api: Api) -> None:
    node = await api.join("a1", gpus=2)

    status, shown = await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 4, "device": "GPU-a1-0000"})
    _, shared = await api.call("POST", "/v1/reservations", SLOT)
    _, whole = await api.call("POST", "/v1/reservations", WHOLE)

    assert (status, shown["offers"], shown["slots"]) == (200, {"slot": 4, "gpu": 1}, {"GPU-a1-0000": 4})
    assert shared["members"][0]["devices"] == ["GPU-a1-0000"]
    assert whole["members"][0]["devices"] == ["GPU-a1-0001"]
    (first, second) = (await api.desired_of(node.node_id)).assignments
    assert sorted([first.shared, second.shared]) == [[], ["GPU-a1-0000"]]


async def test_no_gpu_changes_its_kind_under_a_booking_and_the_refusal_names_it(api: Api) -> None:
    await api.join("a1", gpus=2)
    _, booked = await api.call("POST", "/v1/reservations", {**WHOLE, "start": "+5h"})
    device = booked["members"][0]["devices"][0]
    before = await api.rows()

    status, refusal = await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 4, "device": device})
    after = await api.rows()
    other = {"GPU-a1-0000": "GPU-a1-0001", "GPU-a1-0001": "GPU-a1-0000"}[device]
    free, _ = await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 4, "device": other})

    assert (status, refusal["code"], booked["id"] in refusal["detail"]) == (409, "CONFLICT", True)
    assert after == before
    assert free == 200


async def test_whole_again_is_whole_for_all_gpus_of_the_node(api: Api) -> None:
    await api.join("a1", gpus=2)
    await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 4, "device": "GPU-a1-0000"})
    await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 2})

    status, shown = await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 0})

    assert (status, shown["offers"], shown["slots"]) == (200, {"gpu": 2}, {})


async def test_a_cut_is_told_as_an_event_with_what_it_was_before(api: Api) -> None:
    node = await api.join("a1", gpus=2)
    await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 4})
    await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 2, "device": "GPU-a1-0000"})

    told = [row for row in (await api.rows())["event"] if "node.slots_changed" in row]
    assert [node.node_id in row for row in told] == [True, True]
    assert [json.loads(row[-1]) for row in told] == [
        {"slots": {"*": 4}, "former": {}},
        {"slots": {"*": 4, "GPU-a1-0000": 2}, "former": {"*": 4}},
    ]


async def test_a_gpu_in_mig_mode_is_not_cut_and_keeps_its_instances(api: Api) -> None:
    node = await api.join("a1", gpus=2)
    node.split(0)
    await node.report()
    before = await api.rows()

    status, refusal = await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 4, "device": "GPU-a1-0000"})

    assert (status, refusal["errors"][0]["path"], "MIG mode" in refusal["detail"]) == (400, "device", True)
    assert await api.rows() == before


async def test_shares_leave_room_for_the_gpus_that_come_later(api: Api) -> None:
    node = await api.join("a1", gpus=8)
    before = await api.rows()
    refused = [await api.call("PUT", "/v1/nodes/a1/slots", {"shares": shares}) for shares in (64, 47)]
    after = await api.rows()
    wide, shown = await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 64, "device": "GPU-a1-0000"})
    fits, _ = await api.call("PUT", "/v1/nodes/a1/slots", {"shares": 38})
    node.gpus = 10
    await node.report()
    _, grown = await api.call("GET", "/v1/nodes/a1")

    told = [(status, problem["code"], "fewer shares" in problem["detail"]) for status, problem in refused]
    assert told == [(409, "CONFLICT", True)] * 2
    assert after == before
    assert (wide, shown["offers"]) == (200, {"slot": 64, "gpu": 7})
    assert (fits, grown["offers"]) == (200, {"slot": 380})


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"shares": 1}, "shares"),
        ({"shares": 65}, "shares"),
        ({"shares": -1}, "shares"),
        ({}, "shares"),
        ({"shares": 2, "device": "GPU-of-nobody"}, "device"),
    ],
)
async def test_bad_shares_are_named_and_change_nothing(api: Api, body: dict[str, object], path: str) -> None:
    await api.join("a1", gpus=2)
    before = await api.rows()

    status, refusal = await api.call("PUT", "/v1/nodes/a1/slots", body)

    assert (status, refusal["code"], refusal["errors"][0]["path"]) == (400, "INVALID_INPUT", path)
    assert await api.rows() == before


async def test_a_node_is_removed_when_it_is_silent_and_empty_and_is_then_unknown(api: Api) -> None:
    await api.join("a1")
    early, refusal = await api.call("DELETE", "/v1/nodes/a1?reason=sold")
    api.clock.ms += 3_600_000

    status, _ = await api.call("DELETE", "/v1/nodes/a1?reason=sold")

    assert (early, refusal["code"], status) == (409, "CONFLICT", 204)
    assert (await api.call("GET", "/v1/nodes/a1"))[0] == 404
    assert (await api.call("GET", "/v1/nodes"))[1]["items"] == []
