"""Days, instants and lengths of time as the owner of a series writes them."""

import re
from datetime import date, datetime, time
from typing import Final

from muster_coordinator.core.model import Policy
from muster_coordinator.core.series import instant_of, zone_of
from muster_coordinator.service.series.occurrence import Series
from muster_coordinator.service.when import instant, length
from muster_shared.errors import invalid
from muster_shared.time import format_duration

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FIRST_DAY: Final = date(1970, 1, 1)


def instant_or_day(path: str, written: str | int, series: Series, now_ms: int) -> int:
    """Read an instant, or a day as the midnight with which it begins on the clocks of a series.

    Raises:
        Problem: `INVALID_INPUT`.
    """
    if is_day(written):
        midnight = datetime.combine(day_of(path, str(written)), time.min)
        return instant_of(midnight, zone_of(series.recurrence.zone))
    return instant(path, written, now_ms)


def is_day(written: str | int) -> bool:
    """Tell whether a day is written, not an instant."""
    return isinstance(written, str) and _DAY.fullmatch(written) is not None


def day_of(path: str, written: str) -> date:
    """Read a day of the years 1970 to 9999 as YYYY-MM-DD.

    Raises:
        Problem: `INVALID_INPUT`.
    """
    try:
        day = date.fromisoformat(written)
    except ValueError:
        raise invalid(path, f"{written} is no day of the calendar") from None
    if day < _FIRST_DAY:
        raise invalid(path, f"{written} is outside the years 1970 to 9999")
    return day


def length_within(path: str, written: str, policy: Policy) -> int:
    """Read a length of time that the pool allows, milliseconds.

    Raises:
        Problem: `INVALID_INPUT`.
    """
    length_ms = length(path, written)
    if length_ms > policy.max_duration_ms:
        raise invalid(path, f"longer than the pool allows ({format_duration(policy.max_duration_ms)})")
    return length_ms
