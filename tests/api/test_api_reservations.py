"""Reservations and events over HTTP: created once, listed in pages, told in order and resumed."""

import json
from typing import Any

from muster_coordinator.api.routes import OPERATIONS
from muster_coordinator.api.server import DOCUMENT_PATH
from tests.support.coordinator_api import Api

ASKED: dict[str, Any] = {"tenantId": "acme", "devices": [{"count": 8}], "duration": "1h"}


async def told(api: Api, after: int, until: str, **headers: str) -> list[tuple[int, str]]:
    """Follow the stream until an event of a type; return the number and type of each."""
    found: list[tuple[int, str]] = []
    async with api.client.get(
        f"/v1/events?after={after}", headers={"Accept": "text/event-stream", **headers}
    ) as answer:
        while not found or found[-1][1] != until:
            block = (await answer.content.readuntil(b"\n\n")).decode()
            lines = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] not in {"", ":"})
            if lines:
                assert json.loads(lines["data"])["type"] == lines["event"]
                found.append((int(lines["id"]), lines["event"]))
    return found


async def test_a_gang_lives_over_http_and_each_step_is_told_in_order(api: Api) -> None:
    nodes = [await api.join(name, fabric="fabric-a.1") for name in ("a1", "a2")]
    status, gang = await api.call(
        "POST", "/v1/reservations", {**ASKED, "gang": {"size": 2, "topologyKey": "fabric.domain"}}
    )
    assert (status, gang["state"], gang["topologyValue"]) == (201, "binding", "fabric-a.1")
    for node in nodes:
        await node.turn()
    assert (await api.call("GET", f"/v1/reservations/{gang['id']}"))[1]["state"] == "active"
    status, ending = await api.call("POST", f"/v1/reservations/{gang['id']}/release")
    assert (status, ending["state"]) == (200, "ending")
    for node in nodes:
        await node.turn()

    everything = await told(api, 0, "reservation.ended")

    assert [number for number, _ in everything] == list(range(1, len(everything) + 1))
    assert [kind.partition(".")[2] for _, kind in everything if kind.startswith("reservation")] == [
        "created", "placed", "binding", "active", "ending", "ended",
    ]  # fmt: skip


async def test_a_stream_resumes_by_sequence_without_gap_or_repeat(api: Api) -> None:
    node = await api.join("a1")
    _, first = await api.call("POST", "/v1/reservations", {**ASKED, "start": "+1h"})
    everything = await told(api, 0, "reservation.placed")
    seen = everything[len(everything) // 2][0]
    await api.call("POST", f"/v1/reservations/{first['id']}/cancel")

    by_header = await told(api, 0, "reservation.ended", **{"Last-Event-ID": str(seen)})
    by_query = await told(api, seen, "reservation.ended")
    _, page = await api.call("GET", f"/v1/events?after={seen}")

    assert by_header == by_query == [(item["seq"], item["type"]) for item in page["items"]]
    assert by_header[0][0] == seen + 1
    assert node.told == []


async def test_the_header_and_the_field_are_one_key(api: Api) -> None:
    await api.join("a1")
    _, made = await api.call("POST", "/v1/reservations", ASKED, **{"Idempotency-Key": "weekly"})
    before = await api.rows()

    _, by_field = await api.call("POST", "/v1/reservations", {**ASKED, "idempotencyKey": "weekly"})
    status, differ = await api.call(
        "POST", "/v1/reservations", {**ASKED, "idempotencyKey": "weekly"}, **{"Idempotency-Key": "daily"}
    )
    mismatch, other = await api.call(
        "POST", "/v1/reservations", {**ASKED, "duration": "2h"}, **{"Idempotency-Key": "weekly"}
    )

    assert by_field["id"] == made["id"]
    assert (status, differ["code"]) == (400, "INVALID_INPUT")
    assert (mismatch, other["code"]) == (422, "IDEMPOTENCY_MISMATCH")
    assert await api.rows() == before


async def test_pages_together_list_everything_once(api: Api) -> None:
    ids = []
    for number in range(5):
        api.clock.ms += 1
        _, made = await api.call("POST", "/v1/reservations", {**ASKED, "tenantId": f"t{number % 2}"})
        ids.append(made["id"])
    found: list[str] = []
    query = "?limit=2"
    while query:
        _, page = await api.call("GET", f"/v1/reservations{query}")
        found += [item["id"] for item in page["items"]]
        query = f"?limit=2&cursor={page['nextCursor']}" if "nextCursor" in page else ""

    _, mine = await api.call("GET", "/v1/reservations?tenantId=t1&state=pending,placed")
    assert found == ids
    assert [item["id"] for item in mine["items"]] == ids[1::2]


async def test_a_list_is_of_one_name_where_one_is_asked_for(api: Api) -> None:
    for name in ("train", "eval", "train"):
        await api.call("POST", "/v1/reservations", {**ASKED, "name": name})

    _, page = await api.call("GET", "/v1/reservations?name=train")

    assert [one["name"] for one in page["items"]] == ["train", "train"]


async def test_a_refused_change_answers_a_conflict_and_changes_nothing(api: Api) -> None:
    await api.join("a1")
    _, booked = await api.call("POST", "/v1/reservations", {**ASKED, "start": "+1h"})
    before = await api.rows()

    status, problem = await api.call("POST", f"/v1/reservations/{booked['id']}/release")

    assert (status, problem["code"]) == (409, "CONFLICT")
    assert await api.rows() == before


async def test_the_document_has_every_route_and_each_reference_leads_somewhere(api: Api) -> None:
    _, document = await api.call("GET", DOCUMENT_PATH)

    served = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert served == {(one.method, one.path) for one in OPERATIONS} | {("GET", DOCUMENT_PATH)}
    assert document["openapi"] == "3.1.0"
    ids = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(set(ids)) == len(ids)
    names = set(document["components"]["schemas"])
    text = json.dumps(document)
    assert {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]} <= names


async def test_it_says_when_it_can_serve(api: Api) -> None:
    assert (await api.call("GET", "/healthz"))[0] == 200
    assert await api.call("GET", "/readyz") == (200, {"status": "ready"})
