"""Over HTTP: limits are set, shown and lifted; who is above one is told so with a code of its own."""

from typing import Any

import pytest

from tests.support.coordinator_api import Api

ONE = {"tenantId": "acme", "devices": [{"count": 8}], "duration": "1h", "start": "+1h"}
LIMIT = {"tenantId": "acme", "gpus": 8}


async def test_a_limit_is_set_shown_and_lifted(api: Api) -> None:
    await api.join("a1")

    status, view = await api.call("PUT", "/v1/quotas", LIMIT)

    assert (status, view["gpus"], view["usedGpus"], view["poolName"]) == (200, 8, 0, "default")
    await api.call("POST", "/v1/reservations", ONE)
    listed = (await api.call("GET", "/v1/quotas?tenantId=acme&poolId=default"))[1]["items"]
    assert [(one["tenantId"], one["usedGpus"]) for one in listed] == [("acme", 8)]
    assert (await api.call("DELETE", "/v1/quotas?tenantId=acme&reason=done"))[0] == 204
    assert (await api.call("GET", "/v1/quotas"))[1]["items"] == []


async def test_more_than_the_limit_is_refused_by_name_and_what_must_wait_says_why(api: Api) -> None:
    await api.join("a1")
    await api.join("a2")
    await api.call("PUT", "/v1/quotas", LIMIT)
    before = await api.rows()

    status, problem = await api.call("POST", "/v1/reservations", {**ONE, "gang": {"size": 2}})

    assert (status, problem["code"]) == (403, "QUOTA_EXCEEDED")
    assert "muster quota" in problem["detail"]
    assert await api.rows() == before
    await api.call("POST", "/v1/reservations", ONE)
    status, waiting = await api.call("POST", "/v1/reservations", ONE)
    assert (status, waiting["condition"]["reason"]) == (201, "quotaExceeded")
    _, told = await api.call("POST", "/v1/capacity/preview", ONE)
    assert (told["fits"], told["quotaMilli"], told["quotaLimitMilli"], told["quotaUsedMilli"]) == (
        False,
        8_000,
        8_000,
        8_000,
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/v1/quotas", None, 400),
        ("PUT", "/v1/quotas", {"tenantId": "acme"}, 400),
        ("PUT", "/v1/quotas", {**LIMIT, "gpus": -1}, 400),
        ("PUT", "/v1/quotas", {**LIMIT, "gpus": "8"}, 400),
        ("PUT", "/v1/quotas", {**LIMIT, "gpus": 0.0001}, 400),
        ("PUT", "/v1/quotas", {**LIMIT, "gpus": 1e9}, 400),
        ("PUT", "/v1/quotas", {**LIMIT, "tenantId": "../acme"}, 400),
        ("PUT", "/v1/quotas", {**LIMIT, "poolId": "nowhere"}, 404),
        ("PUT", "/v1/quotas", b'{"tenantId": "acme", "gpus": NaN}', 400),
        ("DELETE", "/v1/quotas", None, 400),
        ("DELETE", "/v1/quotas?tenantId=acme", None, 404),
        ("DELETE", "/v1/quotas?tenantId=acme&poolId=nowhere", None, 404),
    ],
    ids=str,
)
async def test_bad_input_about_limits_changes_nothing(api: Api, method: str, path: str, body: Any, status: int) -> None:
    before = await api.rows()

    answered, problem = await api.call(method, path, body)

    assert (answered, problem["code"]) == (status, "INVALID_INPUT" if status == 400 else "NOT_FOUND")
    assert await api.rows() == before
