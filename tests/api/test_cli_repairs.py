"""`muster repair` and the flags of losses: what they send, what they show, and how they end."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from muster_coordinator.service.repairs.bodies import RepairedView
from muster_shared.codec import decode
from tests.support.canned import Coordinator, coordinator_running, node, reservation
from tests.support.coordinator_api import Api

REPAIR = "POST /v1/reservations/rsv_1/repair"


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def repaired(**told: Any) -> dict[str, Any]:
    plan = {"sound": False, "fits": True, "leaving": ["gpu-01"], "joining": ["gpu-09"]}
    return reservation(repair={**plan, "message": "gpu-09 took over for gpu-01", **told})


def test_the_canned_document_is_one_of_the_api() -> None:
    decode(RepairedView, json.dumps(repaired()))


async def test_repair_sends_what_was_said_and_tells_who_took_over(coordinator: Coordinator) -> None:
    coordinator.answer(REPAIR, repaired())

    result = await coordinator.muster("repair", "rsv_1", "--avoid", "gpu-01", "--avoid", "gpu-02")

    assert coordinator.asked[0].body == {"avoid": ["gpu-01", "gpu-02"]}
    assert (result.exit_code, result.stderr) == (0, "rsv_1: gpu-09 took over for gpu-01.\n")
    assert result.stdout.splitlines()[-2:] == ["LEAVING  JOINING", "gpu-01   gpu-09"]


async def test_a_dry_run_without_a_plan_b_ends_with_4(coordinator: Coordinator) -> None:
    coordinator.answer(REPAIR, repaired(fits=False, joining=[], message="no node fits: 3 nodes booked"))

    result = await coordinator.muster("repair", "rsv_1", "--dry-run", "-o", "json")

    assert coordinator.asked[0].body == {"dryRun": True}
    assert (result.exit_code, json.loads(result.stdout)["repair"]["fits"]) == (4, False)
    assert result.stderr.splitlines()[0] == "Error: No plan B: no node fits: 3 nodes booked"


async def test_a_sound_reservation_is_said_to_be_sound(coordinator: Coordinator) -> None:
    coordinator.answer(REPAIR, repaired(sound=True, message="every member is sound: there is nothing to repair"))

    result = await coordinator.muster("repair", "rsv_1")

    assert (result.exit_code, result.stderr) == (
        0,
        "rsv_1: every member is sound: there is nothing to repair.\n",
    )
    assert "LEAVING" not in result.stdout


async def test_what_a_gang_wants_when_a_member_is_lost_is_sent_only_where_it_was_said(coordinator: Coordinator) -> None:
    coordinator.answer("POST /v1/reservations", reservation(), 201)
    reserve = ("reserve", "--tenant", "acme", "--gpus", "8", "--for", "12h")

    await coordinator.muster(*reserve, "--on-member-loss", "replace")
    await coordinator.muster(*reserve)
    wrong = await coordinator.muster(*reserve, "--on-member-loss", "retry")

    assert [one.body.get("onMemberLoss") for one in coordinator.asked] == ["replace", None]
    assert (wrong.exit_code, "notify" in wrong.stderr) == (2, True)


async def test_a_node_tells_that_it_is_drained_flaps_or_keeps_what_it_should_have_let_go(
    coordinator: Coordinator,
) -> None:
    late = {"allocationId": "alloc_7", "reservationId": "rsv_7", "since": 1_790_582_000_000}
    coordinator.answer("GET /v1/nodes/gpu-01", node(intent="draining", drained=1, flapping=True, overdue=[late]))

    result = await coordinator.muster("nodes", "get", "gpu-01")

    assert "drained,flapping,release-overdue" in result.stdout
    assert "alloc_7" in result.stdout
    assert "muster nodes fence gpu-01" in result.stdout


async def test_over_http_a_repair_answers_the_reservation_and_refuses_bad_input(api: Api) -> None:
    await api.join("a1")
    body = {"tenantId": "acme", "devices": [{"count": 8}], "duration": "1h", "start": "+3d", "onMemberLoss": "replace"}
    _, made = await api.call("POST", "/v1/reservations", body)
    assert made["onMemberLoss"] == "replace"
    await api.join("a2")
    path = f"/v1/reservations/{made['id']}"

    status, answer = await api.call("POST", f"{path}/repair", {"avoid": ["a1"]})
    assert (status, answer.pop("repair")["joining"]) == (200, ["a2"])
    assert (await api.call("GET", path))[1] == answer
    before = await api.rows()
    for wrong, expected in (({"avoid": "a1"}, 400), ({"avoid": ["zz"]}, 404), ({"avoid": ["a1", "a2"]}, 409)):
        status, _ = await api.call("POST", f"{path}/repair", wrong)
        assert status == expected
    status, _ = await api.call("POST", "/v1/reservations", {**body, "onMemberLoss": "retry"})
    assert status == 400
    assert await api.rows() == before
