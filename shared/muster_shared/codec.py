"""JSON both ways for every message, with one kind of error that names the field."""

import re
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from muster_shared.errors import Code, FieldError, Problem

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_TRIED = ("constrained-", "function-", "[key]")
_ERRORS_MAX = 20  # enough to mend a message in one go; a hostile one cannot ask for a novel


def _integral(value: object) -> object:
    # JSON Schema calls 8.0 an integer; strict integers do not.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _one_line(value: object) -> object:
    # Control and bidirectional characters forge log lines and confuse terminals; no name needs them.
    if isinstance(value, str) and _CONTROL.search(value):
        raise ValueError("control and bidirectional characters are not accepted")
    return value


Count = Annotated[int, Field(ge=0, le=2**53), BeforeValidator(_integral)]
"""An integer that survives every JSON reader: 0 .. 2**53."""

Text = Annotated[str, Field(max_length=256), BeforeValidator(_one_line)]
"""One line for people: no control characters, at most 256 characters."""

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
"""A name that is safe in a path, a metric and a table: 1 to 63 characters."""


class Message(BaseModel):
    """A frozen, strict message in camelCase. Unknown fields are ignored: the sender may be newer."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        extra="ignore",
    )


class Request(Message):
    """A message from a person or program: an unknown field is a mistake and is refused."""

    model_config = ConfigDict(extra="forbid")


M = TypeVar("M", bound=BaseModel)


def decode(model: type[M], body: bytes | str) -> M:
    """Read one message.

    Raises:
        Problem: `INVALID_INPUT`, with the path of every field that is wrong (at most 20).
    """
    try:
        return model.model_validate_json(body, by_alias=True, by_name=False)
    except ValidationError as error:
        errors = tuple(
            FieldError(_path(item["loc"]), str(item["msg"]))
            for item in error.errors(include_url=False, include_input=False, include_context=False)[:_ERRORS_MAX]
        )
        first = errors[0]
        detail = f"{first.path}: {first.message}" if first.path else first.message
        raise Problem(Code.INVALID_INPUT, detail, errors) from None


def _path(parts: tuple[str | int, ...]) -> str:
    # The validator names which member of a union, or which side of a mapping, it tried: nobody wrote that.
    written = (str(part) for part in parts if not str(part).startswith(_TRIED))
    return ".".join(written)


def encode(message: BaseModel) -> bytes:
    """Write one message; fields that are absent (None) are left out."""
    return orjson.dumps(message.model_dump(mode="json", by_alias=True, exclude_none=True))


def dumps(document: Any) -> bytes:  # noqa: ANN401 - any JSON document
    """Write a JSON document with sorted keys, so that equal documents are equal bytes."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def loads(body: bytes | str) -> Any:  # noqa: ANN401 - any JSON document
    """Read a JSON document that we wrote ourselves.

    Raises:
        ValueError: Not JSON.
    """
    return orjson.loads(body)
