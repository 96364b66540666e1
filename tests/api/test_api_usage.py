"""Over HTTP: what was used is told to whom it belongs, and the doctor to operators."""

import pytest

from tests.support.coordinator_api import Api

ONE = {"tenantId": "acme", "devices": [{"count": 8}], "duration": "1h", "start": "+1h"}


async def test_what_is_booked_and_not_begun_is_neither_promised_nor_used_yet(api: Api) -> None:
    await api.join("a1")
    await api.call("POST", "/v1/reservations", ONE)

    status, told = await api.call("GET", "/v1/usage?tenantId=acme&from=-7d")
    _, records = await api.call("GET", "/v1/usage/records")

    assert (status, told["items"], told["totals"], records["items"]) == (200, [], [], [])
    assert told["to"] - told["from"] == 7 * 86_400_000
    assert records["to"] - records["from"] == 30 * 86_400_000


async def test_a_sound_coordinator_says_so(api: Api) -> None:
    await api.join("a1")
    await api.call("POST", "/v1/reservations", ONE)

    assert await api.call("GET", "/v1/doctor") == (200, {"items": [], "count": 0, "reservations": 1, "nodes": 1})


@pytest.mark.parametrize(
    ("query", "status", "path"),
    [
        ("from=yesterday", 400, "from"),
        ("to=%2B1h", 400, "to"),
        ("from=now", 400, "from"),
        ("poolId=nowhere", 404, "poolId"),
        ("tenant=acme", 400, "tenant"),
    ],
)
async def test_a_question_that_is_none_is_refused(api: Api, query: str, status: int, path: str) -> None:
    got, problem = await api.call("GET", f"/v1/usage?{query}")

    assert got == status
    assert problem["errors"][0]["path"] == path
