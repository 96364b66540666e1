"""Reads what a request carries, and refuses what no operation asked for before anything is decided."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NoReturn

from aiohttp import hdrs, web
from pydantic import BaseModel

from muster_coordinator.api.operation import Operation
from muster_shared.codec import Request, decode, dumps
from muster_shared.errors import Code, FieldError, Problem, invalid

IDEMPOTENCY_KEY: Final = "Idempotency-Key"

_KEY: Final = re.compile(r"[\x21-\x7e]{1,128}")
_INTEGER: Final = re.compile(r"-?[0-9]{1,16}")  # 2**53, the largest count, has 16 digits
_BOOLEANS: Final = {"true": True, "false": False}
_NAME_SHOWN: Final = 64  # characters of a wrong name that the refusal repeats


def bearer_token(request: web.Request) -> str | None:
    """Return the token of the Authorization header, or None where there is no such header.

    Raises:
        Problem: `UNAUTHENTICATED` for any other scheme, and for a token that is no ASCII text.
    """
    header = request.headers.get(hdrs.AUTHORIZATION)
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip() or not token.isascii():
        raise Problem(Code.UNAUTHENTICATED, "Send the token as `Authorization: Bearer <token>`")
    return token.strip()


def read_path(request: web.Request) -> dict[str, str]:
    """Return the parameters of the path, percent-decoded.

    Raises:
        Problem: `NOT_FOUND` for one with a control character: no name here has any, and no database would look for it.
    """
    path = dict(request.match_info)
    if not all(value.isprintable() for value in path.values()):
        raise Problem(Code.NOT_FOUND, "nothing here has a name with control characters in it")
    return path


def idempotency_key(request: web.Request) -> str | None:
    """Return the Idempotency-Key header, or None.

    Raises:
        Problem: `INVALID_INPUT` unless it is given once, as 1 to 128 visible ASCII characters.
    """
    keys = request.headers.getall(IDEMPOTENCY_KEY, [])
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise invalid(IDEMPOTENCY_KEY, "give one key of 1 to 128 visible ASCII characters")
    return keys[0]


def read_query(request: web.Request, operation: Operation) -> BaseModel | None:
    """Read the query parameters by the operation's model; None where it has none.

    Raises:
        Problem: `INVALID_INPUT` for a parameter that is unknown, repeated or of the wrong type.
    """
    kinds: Mapping[str, frozenset[str]] = _kinds(operation.query) if operation.query else {}
    errors: list[FieldError] = []
    values: dict[str, str | int | bool] = {}
    for name, text in request.query.items():
        if name not in kinds:
            known = ", ".join(kinds) or "none"
            errors.append(FieldError(name[:_NAME_SHOWN], f"unknown query parameter; known here: {known}"))
        elif name in values:
            errors.append(FieldError(name, "given more than once"))
        else:
            values[name] = _typed(text, kinds[name])
    if errors:
        raise Problem(Code.INVALID_INPUT, f"{errors[0].path}: {errors[0].message}", tuple(errors[:20]))
    return decode(operation.query, dumps(values)) if operation.query else None


async def read_body(request: web.Request, operation: Operation) -> BaseModel | None:
    """Read the body by the operation's model; None where it has none. No body at all reads as `{}`.

    Raises:
        Problem: `TOO_LARGE` (before more is read), `UNSUPPORTED_MEDIA_TYPE`, or `INVALID_INPUT`.
    """
    model = operation.body
    if model is None:
        if request.body_exists:
            raise invalid("", "this operation takes no body")
        return None
    if not request.body_exists:
        return decode(model, b"{}")
    _check_media_type(request)
    body = await _read_limited(request, operation.max_body)
    message = decode(model, body or b"{}")
    # A person who writes a field twice meant one of the two. Agents are ours, and their reports are many.
    if issubclass(model, Request):
        _refuse_repeated_fields(body or b"{}")
    return message


@cache
def _kinds(model: type[BaseModel]) -> Mapping[str, frozenset[str]]:
    """Map each parameter's name on the wire to the JSON types that it may have."""
    properties: dict[str, dict[str, Any]] = model.model_json_schema()["properties"]
    return {
        name: frozenset(str(choice.get("type", "string")) for choice in schema.get("anyOf", [schema]))
        for name, schema in properties.items()
    }


def _typed(text: str, kinds: frozenset[str]) -> str | int | bool:
    # What is no number stays text, so that the model names the parameter in its refusal.
    if "integer" in kinds and "string" not in kinds and _INTEGER.fullmatch(text):
        return int(text)
    if "boolean" in kinds:
        return _BOOLEANS.get(text, text)
    return text


def _check_media_type(request: web.Request) -> None:
    # A compressed body of 1 KiB can hold a document of 1 MiB: no request of ours needs it.
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
        raise Problem(Code.UNSUPPORTED_MEDIA_TYPE, "Send the body without Content-Encoding")
    charset = (request.charset or "utf-8").lower()
    if request.content_type != "application/json" or charset != "utf-8":
        raise Problem(Code.UNSUPPORTED_MEDIA_TYPE, "Send the body as `Content-Type: application/json`, in UTF-8")


async def _read_limited(request: web.Request, bytes_max: int) -> bytes:
    too_large = Problem(Code.TOO_LARGE, f"The body may have at most {bytes_max} bytes")
    if (request.content_length or 0) > bytes_max:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > bytes_max:
                raise too_large
    except (web.RequestPayloadError, ConnectionResetError):
        raise invalid("", "the body is not framed as its headers say, or was not sent to its end") from None
    return bytes(body)


def _refuse_repeated_fields(body: bytes) -> None:
    try:
        json.loads(body, object_pairs_hook=_once_each, parse_constant=_no_constant)
    except ValueError as error:
        raise invalid("", str(error)) from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {repeated[:_NAME_SHOWN]!r} is given twice")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
