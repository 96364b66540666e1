"""Draws the OpenAPI 3.1 document from the operations. Pure: equal operations give an equal document."""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from muster_coordinator.api.errors import ProblemView
from muster_coordinator.api.operation import Operation
from muster_shared.errors import Code

_REF: Final = "#/components/schemas/{model}"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_BOUNDS: Final = {"ge": ("minimum", max), "le": ("maximum", min)}


class _SchemaWriter(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - the library's signature
        """Leave out titles: the generated ones (`Poolid`) say less than the name they come from."""
        return False


def document_of(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document. Instances of a model become one component, however many operations use it."""
    models = sorted({model for operation in operations for model in _models(operation)}, key=lambda m: m.__name__)
    # Validation mode for answers too: there a field with a default may be absent, as `encode` leaves None out.
    _, definitions = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REF, schema_generator=_SchemaWriter
    )
    schemas: dict[str, Any] = _with_true_bounds(definitions["$defs"])
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Muster", "version": version("gpu-muster"), "description": "Promises GPUs."},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}],
    }


def _models(operation: Operation) -> Iterable[type[BaseModel]]:
    candidates = (operation.body, operation.query, operation.answer, ProblemView)
    return (model for model in candidates if model is not None)


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    parts = [part for part in re.split(r"[/.]", operation.path) if part and part != "v1"]
    words = [f"By{name[1].upper()}{name[2:-1]}" if name[0] == "{" else name.capitalize() for name in parts]
    described: dict[str, Any] = {
        "operationId": operation.method.lower() + "".join(words),
        "summary": operation.summary,
        "tags": [parts[0]],
        "x-audience": operation.audience,
        "x-action": operation.action,  # as policies name it
        "parameters": [*_path_parameters(operation), *_query_parameters(operation, schemas)],
        "responses": {**_success(operation), **_problems(operation)},
    }
    if operation.body is not None:
        required = any(field.is_required() for field in operation.body.model_fields.values())
        described["requestBody"] = {"required": required, "content": _json(operation.body)}
    if operation.audience == "public":
        described["security"] = []
    return described


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    names = _PARAMETER.findall(operation.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(operation: Operation, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = schemas[operation.query.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(value)}
        for name, value in schema["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    # A query parameter is absent or has a value: there is no way to write null in a URL.
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf" and (key, value) != ("default", None)}
    match choices:
        case []:
            return rest
        case [only]:
            return {**only, **rest}
        case _:
            return {"anyOf": choices, **rest}


def _success(operation: Operation) -> dict[str, Any]:
    if operation.answer is None:
        return {"200": {"description": "Done"}, "204": {"description": "Done; nothing to tell"}}
    return {
        str(operation.status): {
            "description": "The answer" if operation.status == HTTPStatus.OK.value else "Created",
            "content": _json(operation.answer),
        }
    }


def _problems(operation: Operation) -> dict[str, Any]:
    by_status: dict[int, list[Code]] = {}
    for code in sorted({*_implied(operation), *operation.errors}, key=lambda code: code.http_status):
        by_status.setdefault(code.http_status, []).append(code)
    schema = {"$ref": _REF.format(model=ProblemView.__name__)}
    return {
        str(status): {
            "description": ", ".join(sorted(codes)),
            "content": {"application/problem+json": {"schema": schema}},
        }
        for status, codes in by_status.items()
    }


def _implied(operation: Operation) -> Iterable[Code]:
    """Name the refusals that this layer makes by itself, whatever the handler does."""
    yield from (Code.INVALID_INPUT, Code.INTERNAL)
    if operation.body is not None:
        yield from (Code.TOO_LARGE, Code.UNSUPPORTED_MEDIA_TYPE)
    if operation.audience != "public":
        yield from (Code.UNAUTHENTICATED, Code.FORBIDDEN)


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=model.__name__)}}}


def _with_true_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Turn the keywords `ge` and `le`, at any depth, into JSON Schema's own.

    pydantic writes them literally for a bound that stands after a validator, as each bound added to `Count` does,
    and a reader of the document would not see that bound at all.
    """
    mended: dict[str, Any] = {key: _mended(value) for key, value in schema.items()}
    for keyword, (name, tighter) in _BOUNDS.items():
        bound = mended.get(keyword)
        if isinstance(bound, int):  # and not the schema of a property that has this name
            del mended[keyword]
            mended[name] = tighter(bound, mended.get(name, bound))
    return mended


def _mended(part: object) -> object:
    match part:
        case dict():
            return _with_true_bounds(cast("dict[str, Any]", part))
        case list():
            return [_mended(item) for item in cast("list[object]", part)]
        case _:
            return part
