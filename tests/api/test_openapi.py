"""The OpenAPI document: structurally valid 3.1, and as strict as the models it is drawn from."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from muster_coordinator.api.openapi import document_of
from muster_coordinator.api.operation import Call, Operation
from muster_coordinator.api.server import DOCUMENT_PATH
from muster_shared.codec import Count, Message, Request, Text
from muster_shared.errors import Code
from tests.support.serving import served


class Bounded(Request):
    count: Annotated[Count, Field(ge=1, le=64, description="Devices")]
    memory: Annotated[Annotated[Count, Field(ge=1)] | None, Field(description="GiB")] = None
    loose: Annotated[Count, Field(ge=-5, le=2**60)] = 0
    ge: Count = 0  # a field may be called like a keyword


class Optional(Request):
    text: Text | None = None


class Narrow(Request):
    limit: Annotated[Count, Field(ge=1, le=500)] = 100
    pool_id: Text | None = None
    must: bool


class Thing(Message):
    id: str
    note: str | None = None
    inner: tuple[Optional, ...] = ()


async def handler(_call: Call[Any, Any, Any]) -> Thing:
    return Thing(id="x")


OPERATIONS = (
    Operation("POST", "/v1/things", "Make", handler, body=Bounded, answer=Thing, status=201, errors=(Code.CONFLICT,)),
    Operation("GET", "/v1/things", "List", handler, query=Narrow, answer=Thing),
    Operation("GET", "/v1/things/{thing}", "Get", handler, answer=Thing, errors=(Code.NOT_FOUND,)),
    Operation("POST", "/v1/things/{thing}/parts/{part}", "Note", handler, body=Optional),
    Operation("GET", "/healthz", "Live", handler, audience="public"),
)
DOCUMENT = document_of(OPERATIONS)


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            yield path, operation


def every(part: object) -> Iterator[dict[str, Any]]:
    """Walk all objects of the document."""
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from every(item)


def test_each_reference_leads_to_a_component() -> None:
    references = {item["$ref"] for item in every(DOCUMENT) if isinstance(item.get("$ref"), str)}

    assert references == {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]} - {
        "#/components/schemas/Narrow"  # a query is spelt out parameter by parameter
    }


def test_each_operation_has_its_own_id_a_summary_and_a_described_answer() -> None:
    ids = [operation["operationId"] for _, operation in operations()]

    assert ids == ["postThings", "getThings", "getThingsByThing", "postThingsByThingPartsByPart", "getHealthz"]
    for _, operation in operations():
        assert operation["summary"]
        assert all(response["description"] for response in operation["responses"].values())
        assert any(status.startswith("2") for status in operation["responses"])


def test_each_parameter_of_a_path_is_described_as_required() -> None:
    for path, operation in operations():
        described = {item["name"]: item["required"] for item in operation["parameters"] if item["in"] == "path"}
        assert described == {part[1:-1]: True for part in path.split("/") if part.startswith("{")}


def test_bounds_survive_the_validators_they_stand_behind() -> None:
    properties = DOCUMENT["components"]["schemas"]["Bounded"]["properties"]

    assert properties == {
        "count": {"type": "integer", "minimum": 1, "maximum": 64, "description": "Devices"},
        "memory": {
            "anyOf": [{"type": "integer", "minimum": 1, "maximum": 2**53}, {"type": "null"}],
            "default": None,
            "description": "GiB",
        },
        "loose": {"type": "integer", "minimum": 0, "maximum": 2**53, "default": 0},
        "ge": {"type": "integer", "minimum": 0, "maximum": 2**53, "default": 0},
    }


def test_query_parameters_are_never_null_and_say_what_is_required() -> None:
    parameters = {item["name"]: item for item in DOCUMENT["paths"]["/v1/things"]["get"]["parameters"]}

    assert parameters == {
        "limit": {
            "name": "limit",
            "in": "query",
            "required": False,
            "schema": {"type": "integer", "minimum": 1, "maximum": 500, "default": 100},
        },
        "poolId": {"name": "poolId", "in": "query", "required": False, "schema": {"type": "string", "maxLength": 256}},
        "must": {"name": "must", "in": "query", "required": True, "schema": {"type": "boolean"}},
    }


def test_a_body_is_required_exactly_where_a_field_of_it_is() -> None:
    paths = DOCUMENT["paths"]

    assert paths["/v1/things"]["post"]["requestBody"]["required"] is True
    assert paths["/v1/things/{thing}/parts/{part}"]["post"]["requestBody"]["required"] is False


def test_fields_that_an_answer_may_leave_out_are_not_required() -> None:
    assert DOCUMENT["components"]["schemas"]["Thing"]["required"] == ["id"]


def test_each_operation_lists_the_refusals_of_its_shape_and_its_own() -> None:
    statuses = {operation["operationId"]: sorted(operation["responses"]) for _, operation in operations()}

    assert statuses == {
        "postThings": ["201", "400", "401", "403", "409", "413", "415", "500"],
        "getThings": ["200", "400", "401", "403", "500"],
        "getThingsByThing": ["200", "400", "401", "403", "404", "500"],
        "postThingsByThingPartsByPart": ["200", "204", "400", "401", "403", "413", "415", "500"],
        "getHealthz": ["200", "204", "400", "500"],
    }


def test_only_public_operations_go_without_a_token() -> None:
    assert DOCUMENT["security"] == [{"bearer": []}]
    assert [operation.get("security") for _, operation in operations()] == [None, None, None, None, []]


async def test_the_document_is_served_to_everybody_and_describes_itself() -> None:
    async with served(OPERATIONS, token=None) as client:
        document = await (await client.get(DOCUMENT_PATH)).json()

    assert document["openapi"] == "3.1.0"
    assert document["paths"].pop(DOCUMENT_PATH)["get"]["security"] == []
    assert document == DOCUMENT
