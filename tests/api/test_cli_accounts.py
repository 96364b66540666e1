"""`muster quota`: GPUs for people, documents of the API for programs."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from muster_coordinator.service.accounts import bodies
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


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def test_the_canned_documents_are_documents_of_the_api() -> None:
    decode(bodies.QuotaView, json.dumps(QUOTA))


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
