"""The stream of events on a whole coordinator: filtered, and resumed over a restart with nothing lost or told twice."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse

from tests.support.coordinator_api import Api, api_on

STREAM = {"Accept": "text/event-stream"}


async def told(answer: ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a stream, each after its number was checked."""
    seq = b""
    async for line in answer.content:
        if line.startswith(b"id: "):
            seq = line.removeprefix(b"id: ").strip()
        if line.startswith(b"data: "):
            event = json.loads(line.removeprefix(b"data: "))
            assert str(event["seq"]).encode() == seq
            yield event


async def first(api: Api, count: int, after: int | None = None, **query: str) -> list[dict[str, Any]]:
    """Read so many events of a stream, then leave it."""
    headers = STREAM if after is None else {**STREAM, "Last-Event-ID": str(after)}
    answer = await api.client.get("/v1/events", headers=headers, params=query)
    assert answer.status == 200, await answer.text()
    got: list[dict[str, Any]] = []
    async for event in told(answer):
        got.append(event)
        if len(got) == count:
            break
    answer.close()
    return got


async def cordoned(api: Api, *names: str) -> None:
    for name in names:
        await api.call("POST", f"/v1/nodes/{name}/cordon", {})


async def test_a_stream_resumes_over_a_restart_where_it_broke(database_url: str) -> None:
    scheme, _, rest = database_url.partition("://")
    database = rest[1:] if "sqlite" in scheme else f"postgresql://{rest}"
    async with api_on(database) as api:
        await api.join("n1")
        await api.join("n2")
        before = await first(api, 3)

    async with api_on(database) as api:
        await cordoned(api, "n1", "n2")
        after = await first(api, 4, after=before[-1]["seq"])

    assert [event["seq"] for event in before + after] == [1, 2, 3, 4, 5, 6, 7]
    assert [event["type"] for event in after[-2:]] == ["node.cordoned", "node.cordoned"]


async def test_a_stream_tells_what_is_asked_for_by_type_and_subject(api: Api) -> None:
    one, two = await api.join("n1"), await api.join("n2")
    await cordoned(api, "n1", "n2")

    by_kind = await first(api, 2, type="node.cordoned,pool.")
    by_prefix = await first(api, 3, type="node.", subject=two.node_id)
    page = await api.call("GET", f"/v1/events?subject={one.node_id}&type=node.cordoned,node.uncordoned&poolId=default")

    assert [event["type"] for event in by_kind] == ["pool.created", "node.cordoned"]
    assert [event["type"] for event in by_prefix] == ["node.joined", "node.inventory_changed", "node.cordoned"]
    assert [event["subject"] for event in page[1]["items"]] == [one.node_id]


async def test_a_filtered_stream_goes_on_with_what_happens_later(api: Api) -> None:
    agent = await api.join("n1")
    answer = await api.client.get("/v1/events", headers=STREAM, params={"type": "node.cordoned"})
    stream = told(answer)

    await cordoned(api, "n1")
    event = await anext(stream)
    answer.close()

    assert (event["type"], event["subject"]) == ("node.cordoned", agent.node_id)


@pytest.mark.parametrize("asked", ["type=", "type=node", "type=node.x%25", "type=node.,,", "type=Node.cordoned"])
async def test_what_is_no_event_type_is_refused_before_a_stream_begins(tmp_path: Path, asked: str) -> None:
    async with api_on(str(tmp_path / "muster.db")) as api:
        status, problem = await api.call("GET", f"/v1/events?{asked}", **STREAM)

    assert (status, problem["errors"][0]["path"]) == (400, "type")
    assert "reservation.repaired" in problem["detail"]


async def test_a_pool_that_there_is_not_is_refused(tmp_path: Path) -> None:
    async with api_on(str(tmp_path / "muster.db")) as api:
        status, problem = await api.call("GET", "/v1/events?poolId=elsewhere", **STREAM)

    assert (status, problem["code"]) == (404, "NOT_FOUND")
