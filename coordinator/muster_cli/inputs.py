"""What people may write after a flag, checked before anything is sent."""

import re
from collections.abc import Callable
from datetime import date
from typing import Final

import click

from muster_shared.time import parse_duration, parse_instant

_ENTRY: Final = ("class", "count", "topology", "model", "memoryGib", "profile")
_NUMBERS: Final = frozenset({"count", "memoryGib"})
_CLOCK: Final = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_SOME_MS: Final = 4_102_444_800_000  # 2100: what is relative is only checked for its form here
_KEY: Final = re.compile(r"[\x21-\x7e]{1,128}")


def _unchanged(name: str, check: Callable[[str], object]) -> Callable[[str], str]:
    """Make a click type of a check: the text goes out as it was written, for the coordinator's clock to resolve.

    Its name is what help calls it.
    """

    def checked(text: str) -> str:
        try:
            check(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        return text

    checked.__name__ = name
    return checked


def _instant(text: str) -> int:
    return parse_instant(text, _SOME_MS)


def _key(text: str) -> None:
    if not _KEY.fullmatch(text):
        raise ValueError("a key has 1 to 128 visible ASCII characters")


def _clock(text: str) -> None:
    if not _CLOCK.fullmatch(text):
        raise ValueError(f"{text!r} is no time of day such as 08:00")


def _day(text: str) -> None:
    try:
        date.fromisoformat(text if _DAY.fullmatch(text) else "")
    except ValueError:
        raise ValueError(f"{text!r} is no day such as 2027-01-18") from None


def _day_or_instant(text: str) -> None:
    if _DAY.fullmatch(text):
        _day(text)
    else:
        parse_instant(text, _SOME_MS)


CLOCK: Final = _unchanged("clock", _clock)
DAY: Final = _unchanged("day", _day)
DAY_OR_INSTANT: Final = _unchanged("day_or_instant", _day_or_instant)
DURATION: Final = _unchanged("duration", parse_duration)
INSTANT: Final = _unchanged("instant", _instant)
KEY: Final = _unchanged("key", _key)


def pair(text: str) -> tuple[str, str]:
    """Read `key=value`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not key=value, such as rack=r7")
    return key, value


def counted(text: str) -> tuple[str, int]:
    """Read `1g.10gb:2`; one of them where no number is given."""
    profile, colon, count = text.partition(":")
    if not profile or (colon and not (count.isdecimal() and int(count))):
        raise click.BadParameter(f"{text!r} is not PROFILE:N, such as 1g.10gb:2")
    return profile, int(count) if colon else 1


def segment(text: str) -> tuple[int, str]:
    """Read `16:fabric.domain`."""
    size, _, label = text.partition(":")
    if not size.isdecimal() or not int(size) or not label:
        raise click.BadParameter(f"{text!r} is not N:LABEL, such as 16:fabric.domain")
    return int(size), label


def entry(text: str) -> dict[str, object]:
    """Read `class=gpu,count=8,model=H100`: one kind of devices, by the names of the API."""
    fields: dict[str, object] = {}
    for part in text.split(","):
        name, value = pair(part)
        if name not in _ENTRY:
            raise click.BadParameter(f"{name!r} is none of {', '.join(_ENTRY)}")
        if name in fields:
            raise click.BadParameter(f"{name!r} is given twice in {text!r}")
        if name in _NUMBERS and not value.isdecimal():
            raise click.BadParameter(f"{name} is a number, not {value!r}")
        fields[name] = int(value) if name in _NUMBERS else value
    if "count" not in fields:
        raise click.BadParameter(f"{text!r} says no count")
    return fields


def pairs(given: tuple[tuple[str, str], ...], flag: str) -> dict[str, str]:
    """Join repeated `key=value` flags.

    Raises:
        click.BadParameter: A key is given twice.
    """
    joined = dict(given)
    if len(joined) < len(given):
        raise click.BadParameter(f"a key is given twice in {flag}")
    return joined
