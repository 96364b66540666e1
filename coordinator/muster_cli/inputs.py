"""What people may write after a flag, checked before anything is sent."""

import re
from collections.abc import Callable
from typing import Final

import click

from muster_shared.time import parse_duration, parse_instant

_KEY: Final = re.compile(r"[\x21-\x7e]{1,128}")


def _unchanged(check: Callable[[str], object]) -> Callable[[str], str]:
    """Make a click type of a check: the text goes out as it was written, for the coordinator's clock to resolve."""

    def checked(text: str) -> str:
        try:
            check(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        return text

    return checked


def _instant(text: str) -> int:
    return parse_instant(text, 0)


def _key(text: str) -> None:
    if not _KEY.fullmatch(text):
        raise ValueError("a key has 1 to 128 visible ASCII characters")


DURATION: Final = _unchanged(parse_duration)
INSTANT: Final = _unchanged(_instant)
KEY: Final = _unchanged(_key)


def pair(text: str) -> tuple[str, str]:
    """Read `key=value`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not key=value")
    return key, value


def pairs(given: tuple[tuple[str, str], ...], flag: str) -> dict[str, str]:
    """Join repeated `key=value` flags.

    Raises:
        click.BadParameter: A key is given twice.
    """
    joined = dict(given)
    if len(joined) < len(given):
        raise click.BadParameter(f"a key is given twice in {flag}")
    return joined
