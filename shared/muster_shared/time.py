"""Time as both programs mean it: integer milliseconds UTC, durations, half-open windows.

Nothing here reads a clock. One overlap predicate serves planner, store and timeline.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

MS_MAX: Final = 253_402_300_800_000
"""The end of the year 9999, in milliseconds UTC: later instants have no RFC 3339 form."""

_EPOCH_DIGITS: Final = 15  # MS_MAX has as many
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHORT: Final = re.compile(r"(?:[0-9]{1,12}(?:ms|[smhdw]))+")
_PART: Final = re.compile(r"([0-9]+)(ms|[smhdw])")
_ISO: Final = re.compile(
    r"P(?:([0-9]{1,6})W)?(?:([0-9]{1,6})D)?(?:T(?:([0-9]{1,6})H)?(?:([0-9]{1,6})M)?(?:([0-9]{1,6})(?:[.,]([0-9]{1,3}))?S)?)?"
)
_RFC3339: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})")


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """`[start_ms, end_ms)`, milliseconds UTC, half open: touching windows do not overlap."""

    start_ms: int
    end_ms: int

    def __post_init__(self) -> None:
        """Refuse an empty or negative window: whoever builds one has checked its input."""
        if not 0 <= self.start_ms < self.end_ms <= MS_MAX:
            raise ValueError(f"not a window: [{self.start_ms}, {self.end_ms})")

    @property
    def duration_ms(self) -> int:
        """Length in milliseconds, at least 1."""
        return self.end_ms - self.start_ms

    def overlaps(self, other: "Window") -> bool:
        """Tell whether the two share an instant. The one overlap predicate of the project."""
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms

    def occupied(self, turnaround_ms: int) -> "Window":
        """Return what a booking of this window keeps from others: `[start, end + turnaround)`."""
        return Window(self.start_ms, min(self.end_ms + turnaround_ms, MS_MAX))


def parse_duration(text: str) -> int:
    """Read `90s`, `30m`, `12h`, `3d`, `1h30m` or ISO 8601 (`PT12H`), in milliseconds.

    Raises:
        ValueError: Not a duration, zero, or longer than any window; the message says what is accepted.
    """
    total = 0
    if _SHORT.fullmatch(text):
        total = sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text))
    elif (iso := _ISO.fullmatch(text)) and text not in {"P", "PT"}:
        weeks, days, hours, minutes, seconds, fraction = (part or "0" for part in iso.groups())
        total = int(weeks) * _UNITS["w"] + int(days) * _UNITS["d"] + int(hours) * _UNITS["h"]
        total += int(minutes) * _UNITS["m"] + int(seconds) * _UNITS["s"] + int(fraction.ljust(3, "0"))
    else:
        raise ValueError(f"{text!r} is not a duration: use 90s, 30m, 12h, 3d or ISO 8601 such as PT12H")
    if not 0 < total <= MS_MAX:
        raise ValueError(f"{text!r} is out of range: a duration is at least 1ms")
    return total


def parse_instant(text: str, now_ms: int) -> int:
    """Read `now`, `+2h`, `-7d`, RFC 3339 with an offset, or epoch milliseconds; in milliseconds UTC.

    Args:
        text: What a person or program wrote.
        now_ms: The clock that relative instants are counted from (the coordinator's).

    Raises:
        ValueError: Not an instant, without an offset, or outside the years 1970 to 9999.
    """
    if text == "now":
        return now_ms
    if text.startswith("+"):
        instant = now_ms + parse_duration(text[1:])
    elif text.startswith("-"):
        instant = now_ms - parse_duration(text[1:])
    elif text.isascii() and text.isdigit() and len(text) <= _EPOCH_DIGITS:
        instant = int(text)
    elif _RFC3339.fullmatch(text):
        moment = datetime.fromisoformat(text.upper())
        instant = (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    else:
        raise ValueError(
            f"{text!r} is not an instant: use now, +2h, -7d, epoch milliseconds, "
            "or RFC 3339 with an offset such as 2026-09-28T08:00:00Z"
        )
    if not 0 <= instant <= MS_MAX:
        raise ValueError(f"{text!r} is outside the years 1970 to 9999")
    return instant


def format_instant(ms: int) -> str:
    """Write milliseconds UTC as RFC 3339 with `Z`; milliseconds are shown only where there are any.

    Args:
        ms: 0 or more. What RFC 3339 cannot say, `MS_MAX` and beyond, is written as the last instant that it can.
    """
    shown_ms = min(ms, MS_MAX - 1)
    moment = datetime.fromtimestamp(shown_ms // 1000, UTC)
    fraction = f".{shown_ms % 1000:03d}" if shown_ms % 1000 else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def format_duration(ms: int) -> str:
    """Write a duration in its two largest units, such as `3d4h`, `12h`, `1m30s` or `250ms`."""
    parts: list[str] = []
    rest = ms
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"
