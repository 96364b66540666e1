"""Instants and lengths of time as people write them, read on the coordinator's clock; refusals name the field."""

from typing import overload

from muster_shared.errors import invalid
from muster_shared.time import parse_duration, parse_instant


@overload
def instant(path: str, value: None, now_ms: int) -> None: ...
@overload
def instant(path: str, value: str | int, now_ms: int) -> int: ...
@overload
def instant(path: str, value: str | int | None, now_ms: int) -> int | None: ...
def instant(path: str, value: str | int | None, now_ms: int) -> int | None:
    """Read an instant, in milliseconds UTC; None stays None.

    Raises:
        Problem: `INVALID_INPUT` with the field's path and what is accepted.
    """
    if value is None:
        return None
    try:
        return parse_instant(str(value), now_ms)
    except ValueError as error:
        raise invalid(path, str(error)) from None


def length(path: str, text: str) -> int:
    """Read a length of time, in milliseconds, at least 1.

    Raises:
        Problem: `INVALID_INPUT` with the field's path and what is accepted.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise invalid(path, str(error)) from None
