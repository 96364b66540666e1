"""`muster quota`, `usage` and `doctor`: GPUs for people, documents of the API for programs."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from muster_coordinator.service.accounts import bodies, usage_bodies
from muster_shared.codec import decode
from tests.support.canned import HOUR_MS, NOW_MS, Coordinator, coordinator_running

QUOTA: dict[str, Any] = {
    "tenantId": "acme",
    "poolId": "pool_1",
    "poolName": "default",
    "gpus": 64.5,
    "usedGpus": 16.125,
    "changed": NOW_MS - HOUR_MS,
}

AMOUNTS: dict[str, Any] = {
    "tenantId": "acme",
    "kind": "regular",
    "promisedMilliMs": 57_600_000_000,
    "deliveredMilliMs": 57_000_000_000,
    "promisedGpuHours": 16.0,
    "deliveredGpuHours": 15.833333,
    "lateMs": 75_000,
}
USAGE: dict[str, Any] = {
    "from": NOW_MS - 24 * HOUR_MS,
    "to": NOW_MS,
    "items": [{**AMOUNTS, "reservationId": "rsv_1", "name": "train", "poolId": "pool_1", "final": True}],
    "totals": [{**AMOUNTS, "budget": "vision", "reservations": 1}],
}
RECORDS: dict[str, Any] = {
    "from": NOW_MS - 24 * HOUR_MS,
    "to": NOW_MS,
    "items": [
        {
            "allocationId": "alloc_1",
            "reservationId": "rsv_1",
            "name": "=HYPERLINK(1)",
            "tenantId": "acme",
            "poolId": "pool_1",
            "kind": "regular",
            "nodeId": "node_1",
            "milli": 8_000,
            "start": NOW_MS - HOUR_MS,
            "end": NOW_MS,
            "milliMs": 8_000 * HOUR_MS,
            "final": False,
        }
    ],
}


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def test_the_canned_documents_are_documents_of_the_api() -> None:
    decode(bodies.QuotaView, json.dumps(QUOTA))
    decode(usage_bodies.UsageView, json.dumps(USAGE))
    decode(usage_bodies.UsageRecords, json.dumps(RECORDS))


async def test_limits_are_listed_with_what_is_left_of_them(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/quotas", {"items": [QUOTA]})

    result = await coordinator.muster("quota")
    as_json = await coordinator.muster("quota", "list", "--tenant", "acme", "-o", "json")

    assert result.stdout == (
        "TENANT  POOL     GPUS  USED    LEFT    CHANGED\nacme    default  64.5  16.125  48.375  1h ago\n"
    )
    assert json.loads(as_json.stdout) == {"items": [QUOTA]}


async def test_a_limit_is_set_in_gpus_and_lifted(coordinator: Coordinator) -> None:
    coordinator.answer("PUT /v1/quotas", QUOTA)
    coordinator.answer("DELETE /v1/quotas", {})

    done = await coordinator.muster("quota", "set", "acme", "64.5", "--reason", "new budget")
    lifted = await coordinator.muster("quota", "remove", "acme", "--pool", "west")

    assert coordinator.asked[0].body == {"tenantId": "acme", "gpus": 64.5, "reason": "new budget"}
    assert (done.exit_code, done.stderr) == (0, "acme may hold 64.5 GPUs at once in default.\n")
    assert coordinator.asked[1].call == "DELETE /v1/quotas?tenantId=acme&poolId=west"
    assert (lifted.exit_code, lifted.stderr) == (0, "acme has no limit any more.\n")


@pytest.mark.parametrize("gpus", ["-1", "eight", "0.0001", "1e3", "NaN", ""])
async def test_what_is_no_number_of_gpus_is_refused_before_anything_is_sent(
    coordinator: Coordinator, gpus: str
) -> None:
    result = await coordinator.muster("quota", "set", "acme", "--", gpus)

    assert (result.exit_code, coordinator.asked) == (2, [])


async def test_usage_is_told_in_gpu_hours_by_tenant_and_wide_by_reservation(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/usage", USAGE)

    short = await coordinator.muster("usage", "--from", "-1d", "--tenant", "acme")
    wide = await coordinator.muster("usage", "-o", "wide")

    assert coordinator.asked[0].call == "GET /v1/usage?tenantId=acme&from=-1d"
    totals = (
        "TENANT  BUDGET  KIND     RESERVATIONS  PROMISED  DELIVERED  LATE\n"
        "acme    vision  regular  1             16.00     15.83      1m15s\n"
    )
    assert short.stdout == totals
    assert wide.stdout == totals + (
        "\nRESERVATION  NAME   TENANT  PROMISED  DELIVERED  LATE   FINAL\n"
        "rsv_1        train  acme    16.00     15.83      1m15s  yes\n"
    )


async def test_records_are_exported_as_csv_that_no_spreadsheet_runs(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/usage/records", RECORDS)

    table = await coordinator.muster("usage", "--records")
    exported = await coordinator.muster("usage", "--csv")
    as_json = await coordinator.muster("usage", "--records", "-o", "json")

    assert "alloc_1     rsv_1        acme    regular  node_1  1h ago  now  8.000" in table.stdout
    head, row = exported.stdout.splitlines()
    assert head == "allocationId,reservationId,name,tenantId,poolId,budget,kind,nodeId,milli,start,end,milliMs,final"
    assert row == (
        f"alloc_1,rsv_1,'=HYPERLINK(1),acme,pool_1,,regular,node_1,8000,{NOW_MS - HOUR_MS},{NOW_MS},"
        f"{8_000 * HOUR_MS},false"
    )
    assert json.loads(as_json.stdout) == RECORDS


async def test_the_doctor_ends_with_1_where_a_rule_is_broken(coordinator: Coordinator) -> None:
    finding = {"rule": "I24", "says": "usage is once", "subject": "alloc_1", "message": "has no record"}
    coordinator.answer("GET /v1/doctor", {"items": [finding], "count": 1, "reservations": 3, "nodes": 2})

    ill = await coordinator.muster("doctor")

    assert (ill.exit_code, ill.stderr) == (1, "1 findings; 1 are shown.\n")
    assert ill.stdout == ("RULE  SUBJECT  FINDING        MUST-HOLD\nI24   alloc_1  has no record  usage is once\n")


async def test_the_doctor_has_nothing_to_show_where_all_is_sound(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/doctor", {"items": [], "count": 0, "reservations": 3, "nodes": 2})

    sound = await coordinator.muster("doctor")

    assert (sound.exit_code, sound.stdout) == (0, "")
    assert sound.stderr == "Sound: 3 reservations that have not ended, 2 nodes, and all accounts.\n"
