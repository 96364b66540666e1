"""The operation layer, on a real server on loopback: what it refuses, how it words it, and what it documents."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

import pytest
import pytest_asyncio
from aiohttp import ClientResponse, ClientSession
from pydantic import Field
from structlog.testing import capture_logs

from muster_coordinator.api.operation import Call, Operation
from muster_shared.codec import Count, Message, Request, Text
from muster_shared.errors import Code, Problem
from tests.support.serving import served


class Order(Request):
    count: Annotated[Count, Field(ge=1, le=64)]
    name: Text | None = None
    parts: tuple["Part", ...] = ()


class Part(Request):
    weight: Count


class Note(Request):
    text: Text | None = None


class Heartbeat(Message):
    seq: Count


class Filter(Request):
    limit: Annotated[Count, Field(ge=1, le=500)] = 100
    pool_id: Text | None = None
    all: bool = False


class Echo(Message):
    count: Count = 0
    name: str | None = None
    caller: str = ""
    key: str | None = None


async def order(call: Call[str, Order, None]) -> Echo:
    return Echo(count=call.body.count, name=call.body.name, caller=call.guard.caller.name, key=call.idempotency_key)


async def note(call: Call[str, Note, None]) -> Echo:
    return Echo(name=f"{call.services}:{call.path['id']}:{call.body.text}")


async def search(call: Call[str, None, Filter]) -> Echo:
    return Echo(count=call.query.limit, name=f"{call.query.pool_id},{call.query.all}")


async def heartbeat(call: Call[str, Heartbeat, None]) -> None:
    assert call.body.seq >= 0


async def broken(_call: Call[str, None, None]) -> Echo:
    raise RuntimeError("the password is swordfish")


async def liar(_call: Call[str, None, None]) -> Note:
    return Note(text="not what the document says")


async def taken(_call: Call[str, None, None]) -> Echo:
    raise Problem(Code.CONFLICT, "Reservation has ended")


OPERATIONS = (
    Operation("POST", "/v1/orders", "Order", order, body=Order, answer=Echo, status=201, errors=(Code.CONFLICT,)),
    Operation("GET", "/v1/orders", "Search", search, query=Filter, answer=Echo),
    Operation("POST", "/v1/orders/{id}/note", "Note", note, body=Note, answer=Echo, audience="operator"),
    Operation("POST", "/v1/heartbeat", "Beat", heartbeat, body=Heartbeat, audience="node", max_body=64),
    Operation("GET", "/v1/broken", "Break", broken, answer=Echo, audience="public"),
    Operation("GET", "/v1/liar", "Lie", liar, answer=Echo, audience="public"),
    Operation("GET", "/v1/taken", "Refuse", taken, answer=Echo, audience="public"),
)


@pytest_asyncio.fixture
async def client() -> AsyncIterator[ClientSession]:
    async with served(OPERATIONS, services="services") as client:
        yield client


JSON = {"Content-Type": "application/json"}


async def problem_of(answer: ClientResponse) -> dict[str, Any]:
    problem: dict[str, Any] = json.loads(await answer.read())
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert problem["status"] == answer.status
    assert problem["requestId"] == answer.headers["X-Request-Id"]
    assert set(problem) == {"type", "title", "status", "code", "detail", "errors", "requestId"}
    return problem


async def test_an_answer_leaves_out_absent_fields_and_has_the_status_of_its_operation(
    client: ClientSession,
) -> None:
    answer = await client.post("/v1/orders", json={"count": 8.0}, headers={"Idempotency-Key": "weekly-eval"})

    assert (answer.status, await answer.json()) == (201, {"count": 8, "caller": "tenant", "key": "weekly-eval"})


BAD_BODIES = {
    "no field": (b"{}", "count"),
    "unknown field": (b'{"count": 1, "gpus": 2}', "gpus"),
    "wrong type": (b'{"count": "1"}', "count"),
    "boolean for a number": (b'{"count": true}', "count"),
    "negative": (b'{"count": -1}', "count"),
    "zero": (b'{"count": 0}', "count"),
    "fraction": (b'{"count": 1.5}', "count"),
    "too many": (b'{"count": 65}', "count"),
    "beyond every integer": (b'{"count": %s}' % (b"9" * 30), "count"),
    "a number of 5000 digits": (b'{"count": %s}' % (b"9" * 5000), ""),
    "not a number": (b'{"count": NaN}', "count"),
    "infinite": (b'{"count": 1e999}', "count"),
    "in a list": (b'{"count": 1, "parts": [{"weight": 1}, {"weight": null}]}', "parts.1.weight"),
    "control character": (rb'{"count": 1, "name": "a\u001bb"}', "name"),
    "lone surrogate": (rb'{"count": 1, "name": "\ud800"}', ""),
    "field given twice": (b'{"count": 1, "count": 2}', ""),
    "field given twice, deep": (b'{"count": 1, "parts": [{"weight": 1, "weight": 1}]}', ""),
    "depth bomb": (b'{"count": ' + b"[" * 100_000, ""),
    "not JSON": (b"count=1", ""),
    "not UTF-8": (b'{"count": 1, "name": "\xff"}', ""),
    "UTF-16": ('{"count": 1}'.encode("utf-16"), ""),
    "a list": (b"[]", ""),
    "null": (b"null", ""),
}


@pytest.mark.parametrize(("body", "path"), BAD_BODIES.values(), ids=BAD_BODIES.keys())
async def test_a_bad_body_is_refused_with_the_path_of_the_field(client: ClientSession, body: bytes, path: str) -> None:
    problem = await problem_of(await client.post("/v1/orders", data=body, headers=JSON))

    assert problem["code"] == "INVALID_INPUT"
    assert problem["errors"][0]["path"] == path


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("limit=1.0", "limit"),
        ("limit=+1", "limit"),
        ("limit=", "limit"),
        ("limit=%D9%A3", "limit"),  # an Arabic three
        ("limit=99999999999999999999", "limit"),
        ("limit=1&limit=1", "limit"),
        ("all=yes", "all"),
        ("pool=x", "pool"),
        ("pool_id=x", "pool_id"),
        ("poolId=%1b", "poolId"),
    ],
)
async def test_a_bad_query_is_refused_with_the_parameters_name(client: ClientSession, query: str, path: str) -> None:
    problem = await problem_of(await client.get(f"/v1/orders?{query}"))

    assert (problem["code"], problem["errors"][0]["path"]) == ("INVALID_INPUT", path)


async def test_query_parameters_arrive_typed_and_with_their_defaults(client: ClientSession) -> None:
    given = await client.get("/v1/orders?limit=7&poolId=12&all=true")
    absent = await client.get("/v1/orders")

    assert [await given.json(), await absent.json()] == [
        {"count": 7, "name": "12,True", "caller": ""},
        {"count": 100, "name": "None,False", "caller": ""},
    ]


async def test_an_operation_without_query_or_body_refuses_both(client: ClientSession) -> None:
    with_query = await problem_of(await client.get("/v1/taken?x=1"))
    with_body = await problem_of(await client.get("/v1/orders", data=b"{}", headers=JSON))

    assert [with_query["code"], with_body["code"]] == ["INVALID_INPUT", "INVALID_INPUT"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        {"Content-Type": "application/json", "Content-Encoding": "br"},
    ],
)
async def test_only_plain_utf8_json_is_read(client: ClientSession, headers: dict[str, str]) -> None:
    answer = await client.post("/v1/orders", data=b'{"count": 1}', headers=headers, skip_auto_headers=["Content-Type"])
    problem = await problem_of(answer)

    assert (answer.status, problem["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_declared_size_above_the_limit_is_refused_before_the_body_comes(client: ClientSession) -> None:
    url = (await client.get("/v1/taken")).url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(
        b"POST /v1/heartbeat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer node\r\n"
        b"Content-Type: application/json\r\nContent-Length: 65\r\n\r\n"
    )
    async with asyncio.timeout(5):  # whoever reads on waits for ever
        head = await reader.readuntil(b"\r\n\r\n")
    writer.close()

    assert head.startswith(b"HTTP/1.1 413 ")


async def test_an_undeclared_size_above_the_limit_is_refused(client: ClientSession) -> None:
    async def endless() -> AsyncGenerator[bytes, None]:
        for _ in range(100):
            yield b" " * 60

    problem = await problem_of(
        await client.post("/v1/heartbeat", data=endless(), headers={**JSON, "Authorization": "Bearer node"})
    )

    assert problem["code"] == "TOO_LARGE"


async def test_a_body_of_exactly_the_limit_is_read(client: ClientSession) -> None:
    body = b'{"seq": 1}'.ljust(64)

    answer = await client.post("/v1/heartbeat", data=body, headers={**JSON, "Authorization": "Bearer node"})

    assert (answer.status, await answer.read()) == (204, b"")


async def test_messages_of_newer_agents_may_have_fields_that_we_do_not_know(client: ClientSession) -> None:
    headers = {"Authorization": "Bearer node"}

    answer = await client.post("/v1/heartbeat", json={"seq": 1, "mood": "good"}, headers=headers)

    assert answer.status == 204


async def test_a_body_of_optional_fields_may_be_missing(client: ClientSession) -> None:
    headers = {"Authorization": "Bearer operator"}

    missing = await client.post("/v1/orders/a%20b/note", headers=headers)
    given = await client.post("/v1/orders/a%20b/note", json={"text": "rack move"}, headers=headers)

    assert [(await missing.json())["name"], (await given.json())["name"]] == [
        "services:a b:None",
        "services:a b:rack move",
    ]


@pytest.mark.parametrize("key", ["", "two words", "x" * 129, "schlüssel"])
async def test_an_idempotency_key_is_visible_ascii_of_bounded_length(client: ClientSession, key: str) -> None:
    answer = await client.post("/v1/orders", json={"count": 1}, headers={"Idempotency-Key": key})

    assert (await problem_of(answer))["errors"][0]["path"] == "Idempotency-Key"


async def test_the_router_refuses_in_the_same_words_as_everything_else(client: ClientSession) -> None:
    nowhere = await client.get("/v1/nowhere")
    wrong_method = await client.delete("/v1/orders")

    assert (nowhere.status, (await problem_of(nowhere))["code"]) == (404, "NOT_FOUND")
    assert (wrong_method.status, (await problem_of(wrong_method))["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert wrong_method.headers["Allow"] == "GET,POST"


async def test_a_handlers_refusal_becomes_a_problem_document(client: ClientSession) -> None:
    answer = await client.get("/v1/taken", headers={"X-Request-Id": "mine-1"})

    assert await problem_of(answer) == {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "code": "CONFLICT",
        "detail": "Reservation has ended",
        "errors": [],
        "requestId": "mine-1",
    }


@pytest.mark.parametrize("path", ["/v1/broken", "/v1/liar"])
async def test_a_bug_is_answered_with_nothing_but_the_request_id_under_which_it_is_logged(
    client: ClientSession, path: str
) -> None:
    with capture_logs() as logs:
        answer = await client.get(path)
        problem = await problem_of(answer)

    assert (answer.status, problem["code"]) == (500, "INTERNAL")
    assert "swordfish" not in await answer.text() + str(answer.headers)
    assert [(line["log_level"], line["request_id"]) for line in logs] == [("error", problem["requestId"])]


async def test_a_request_id_that_could_forge_a_log_line_is_replaced(client: ClientSession) -> None:
    answer = await client.get("/v1/taken", headers={"X-Request-Id": "a b"})

    assert answer.headers["X-Request-Id"].startswith("req-")


@pytest.mark.parametrize(
    ("header", "status"),
    [(None, 401), ("Basic dGVuYW50", 401), ("Bearer", 401), ("Bearer operator", 403), ("bearer tenant", 201)],
)
async def test_callers_are_authorized_before_their_body_is_looked_at(header: str | None, status: int) -> None:
    async with served(OPERATIONS, token=None) as client:
        headers = {} if header is None else {"Authorization": header}
        body = {"count": 1} if status == 201 else {"rubbish": 1}
        answer = await client.post("/v1/orders", json=body, headers=headers)

    assert answer.status == status
    assert ("WWW-Authenticate" in answer.headers) == (status == 401)


async def test_every_answer_forbids_caching_and_sniffing(client: ClientSession) -> None:
    for path in ("/v1/orders", "/v1/nowhere", "/v1/taken"):
        headers = (await client.get(path)).headers
        assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
