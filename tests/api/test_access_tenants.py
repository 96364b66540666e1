"""A tenant's user sees what is the tenant's, and of others not even that it is there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.callers import CREATE, ROOT, SERIES, Callers, bearer, callers_of
from tests.support.coordinator_api import api_on


@pytest_asyncio.fixture
async def callers(tmp_path: Path) -> AsyncIterator[Callers]:
    async with api_on(str(tmp_path / "muster.db"), api_token=ROOT) as api:
        callers = await callers_of(api)
        await api.join("a1")
        for role, tenant in (("tenant", "acme"), ("stranger", "other")):
            await callers.made(role, "/v1/reservations", {**CREATE, "tenantId": tenant, "start": "+1h"})
            await callers.made(role, "/v1/series", {**SERIES, "tenantId": tenant})
        yield callers


async def subjects(callers: Callers, role: str) -> set[str]:
    _, page = await callers.call(role, "GET", "/v1/events?limit=500")
    return {one["subject"] for one in page["items"]}


async def test_lists_have_the_tenants_own_rows_alone(callers: Callers) -> None:
    for path in ("/v1/reservations", "/v1/series"):
        seen = {}
        for role in ("tenant", "reader of acme", "auditor"):
            _, page = await callers.call(role, "GET", path)
            seen[role] = {one["tenantId"] for one in page["items"]}
        other, _ = await callers.call("tenant", "GET", f"{path}?tenantId=other")

        assert seen == {"tenant": {"acme"}, "reader of acme": {"acme"}, "auditor": {"acme", "other"}}
        assert other == 403


async def test_events_are_those_of_the_tenants_own_reservations_and_series(callers: Callers) -> None:
    _, mine = await callers.call("tenant", "GET", "/v1/reservations")
    _, series = await callers.call("tenant", "GET", "/v1/series")
    own = {one["id"] for one in [*mine["items"], *series["items"]]}
    await callers.api.client.get("/healthz")
    while not own <= await subjects(callers, "auditor"):  # numbered by the relay, in its own time
        pass

    assert await subjects(callers, "tenant") == own
    assert len(await subjects(callers, "auditor")) > 2 * len(own)


async def test_the_stream_of_events_tells_the_same(callers: Callers) -> None:
    headers = {**bearer(callers.tokens["stranger"]), "Accept": "text/event-stream"}
    found: set[bytes] = set()
    made = await callers.made("tenant", "/v1/reservations", {**CREATE, "tenantId": "acme", "start": "+3h"})
    last = await callers.made("stranger", "/v1/reservations", {**CREATE, "tenantId": "other", "start": "+4h"})
    async with callers.api.client.get("/v1/events", headers=headers) as stream:
        async for line in stream.content:
            found.add(line)
            if last["id"].encode() in line:
                break

    assert not any(made["id"].encode() in line for line in found)


async def test_a_foreign_id_is_answered_exactly_as_one_that_is_not_there_x01(callers: Callers) -> None:
    for noun in ("reservations", "series"):
        _, page = await callers.call("stranger", "GET", f"/v1/{noun}")
        foreign = page["items"][0]["id"]
        absent = foreign[:-6] + "zzzzzz"
        for verb, body in (("", None), ("/cancel", None)):
            method = "POST" if verb else "GET"
            answers = []
            for thing in (foreign, absent):
                status, problem = await callers.call("tenant", method, f"/v1/{noun}/{thing}{verb}", body)
                del problem["requestId"]
                answers.append((status, {key: str(value).replace(thing, "ID") for key, value in problem.items()}))

            assert answers[0] == answers[1]
            assert answers[0][0] == 404


async def test_another_tenants_key_tells_nothing(callers: Callers) -> None:
    body = {**CREATE, "tenantId": "other", "idempotencyKey": "nightly-1", "start": "+6h"}
    await callers.made("stranger", "/v1/reservations", body)

    seen = [(await callers.call(role, "POST", "/v1/reservations", body))[0] for role in ("tenant", "metrics")]

    assert seen == [403, 403]
