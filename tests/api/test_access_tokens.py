"""Tokens: shown once, kept as hashes, over when they are over; and nobody locks everybody out."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.callers import ROOT, bearer, callers_of
from tests.support.coordinator_api import Api, api_on

DAY_MS = 86_400_000
OPERATOR = {"name": "ada", "roles": ["operator"]}


@pytest_asyncio.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with api_on(str(tmp_path / "muster.db"), api_token=ROOT) as api:
        yield api


@pytest_asyncio.fixture
async def local(tmp_path: Path) -> AsyncIterator[Api]:
    async with api_on(str(tmp_path / "local.db")) as api:
        yield api


async def test_on_loopback_everybody_is_an_operator_until_there_is_a_token_x28(local: Api) -> None:
    open_door, _ = await local.call("GET", "/v1/tokens", Authorization="Bearer left-over-from-elsewhere")
    status, made = await local.call("POST", "/v1/tokens", OPERATOR)
    shut, problem = await local.call("GET", "/v1/pools")
    shown, _ = await local.call("GET", "/v1/pools", **bearer(made["token"]))
    alive, _ = await local.call("GET", "/healthz")

    assert (open_door, status, shut, shown, alive) == (200, 201, 401, 200, 200)
    assert "MUSTER_TOKEN" in problem["detail"]


async def test_the_first_token_is_an_operators_and_the_last_of_them_stays(local: Api) -> None:
    locked_out, problem = await local.call(
        "POST", "/v1/tokens", {"name": "ci", "roles": ["tenant"], "tenantId": "acme"}
    )
    _, made = await local.call("POST", "/v1/tokens", OPERATOR)
    last, _ = await local.call("POST", "/v1/tokens/ada/revoke", **bearer(made["token"]))
    _, second = await local.call("POST", "/v1/tokens", {**OPERATOR, "name": "bob"}, **bearer(made["token"]))
    gone, _ = await local.call("POST", "/v1/tokens/ada/revoke", **bearer(second["token"]))

    assert (locked_out, last, gone) == (409, 409, 200)
    assert "operator first" in problem["detail"]


async def test_a_token_is_kept_as_its_hash_and_shown_once(api: Api) -> None:
    callers = await callers_of(api)
    _, page = await callers.call("operator", "GET", "/v1/tokens")
    stored = repr(await api.look())

    assert len(page["items"]) == 7
    assert "token" not in page["items"][0]
    assert [role for role, token in callers.tokens.items() if token in stored] == []  # X20


async def test_a_revoked_token_is_refused_by_the_next_call_x13(api: Api) -> None:
    callers = await callers_of(api)
    before, _ = await callers.call("tenant", "GET", "/v1/pools")
    status, view = await callers.call("operator", "POST", "/v1/tokens/tenant/revoke", {"reason": "left"})
    after, _ = await callers.call("tenant", "GET", "/v1/pools")
    again, _ = await callers.call("operator", "POST", "/v1/tokens/tenant/revoke")

    assert (before, status, view["state"], after, again) == (200, 200, "revoked", 401, 200)


async def test_a_token_lasts_ninety_days_unless_another_length_is_asked_for(api: Api) -> None:
    callers = await callers_of(api)
    short = await callers.made("root", "/v1/tokens", {"name": "short", "roles": ["operator"], "duration": "1d"})
    callers.tokens["short"] = short["token"]
    found = []
    for days in (1, 90):
        api.clock.ms += days * DAY_MS
        found.append([(await callers.call(role, "GET", "/v1/pools"))[0] for role in ("short", "operator", "root")])

    assert found == [[401, 200, 200], [401, 401, 200]]


async def test_roles_that_do_not_go_together_are_refused(api: Api) -> None:
    callers = await callers_of(api)
    found = []
    wanted: list[dict[str, object]] = [
        {"roles": ["tenant"]},
        {"roles": ["operator"], "tenantId": "acme"},
        {"roles": []},
        {"roles": ["king"]},
        {"roles": ["auditor"], "duration": "9999d"},
        {"roles": ["auditor"], "name": "operator"},
    ]
    for asked in wanted:
        status, _ = await callers.call("root", "POST", "/v1/tokens", {"name": "x", **asked})
        found.append(status)

    assert found == [400, 400, 400, 400, 400, 409]


async def test_the_last_use_of_a_token_is_known(api: Api) -> None:
    callers = await callers_of(api)
    await callers.call("metrics", "GET", "/metrics")
    _, page = await callers.call("operator", "GET", "/v1/tokens")

    used = {one["name"]: one.get("lastUsed") for one in page["items"]}
    assert (used["metrics"], used["stranger"]) == (api.clock.ms, None)


async def test_many_strangers_fill_no_disk(api: Api) -> None:
    for _ in range(120):
        assert (await api.call("POST", "/v1/pools", {"name": "x"}))[0] == 401

    assert len((await api.look())["audit"]) == 100


async def test_a_host_joins_by_a_token_of_its_own_and_every_other_way_is_closed(tmp_path: Path) -> None:
    async with api_on(str(tmp_path / "muster.db"), api_token=ROOT, join_token="of-the-configuration") as api:
        root = {"Authorization": f"Bearer {ROOT}"}
        host = {"name": "a1", "machineId": "machine-a1", "agentVersion": "1"}
        _, made = await api.call("POST", "/v1/join-tokens", {"nodeName": "a1"}, **root)

        statuses = [
            (await api.call("POST", "/v1/nodes/register", host, **shown))[0]
            for shown in ({}, bearer("muster_join_nobody"), bearer(made["token"]), bearer("of-the-configuration"))
        ]
        _, page = await api.call("GET", "/v1/join-tokens?all=true", **root)

    assert statuses == [401, 401, 201, 201]
    assert [(one["nodeName"], one["state"]) for one in page["items"]] == [("a1", "used")]
    assert made["token"] not in str(page)
