"""When a series comes again: rules as RFC 5545 writes them, read on the clocks of one zone.

Wall time is what stays: 08:00 in Berlin is 08:00 before and after the clocks change there. On the two days a year on
which they do:

- a wall time that does not exist (02:30 where 02:00 is followed by 03:00) is read on the clocks as they were before
  the change, so the occurrence begins at 03:30. It is never left out: a nightly batch that runs an hour late is what
  people expect, one that is missing is not;
- a wall time that exists twice is the first of the two, and only that one;
- a duration is time that passes: 12 hours are 12 hours, whatever the clocks show at the end.

Source: RFC 5545, sections 3.3.5 (both readings) and 3.3.10 (rules; it would leave out what does not exist).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from dateutil.rrule import rrulestr

from muster_shared.time import MS_MAX

_WEEKDAY: Final = "(?:MO|TU|WE|TH|FR|SA|SU)"
_ALWAYS: Final = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL"})
_TAKES: Final = {
    "YEARLY": _ALWAYS | {"BYMONTH", "BYMONTHDAY", "BYDAY", "BYHOUR", "BYSETPOS"},
    "MONTHLY": _ALWAYS | {"BYMONTH", "BYMONTHDAY", "BYDAY", "BYHOUR", "BYSETPOS"},
    "WEEKLY": _ALWAYS | {"BYMONTH", "BYDAY", "BYHOUR", "WKST"},
    "DAILY": _ALWAYS | {"BYMONTH", "BYDAY", "BYHOUR"},
    "HOURLY": _ALWAYS | {"BYDAY"},
}
"""What narrows each frequency. More would be legal; it would also let a short text cost seconds to read."""

_VALUES: Final = {
    "INTERVAL": r"[1-9][0-9]{0,2}",
    "COUNT": r"[1-9][0-9]{0,2}",
    "UNTIL": r"[0-9]{8}(?:T[0-9]{6}Z?)?",
    "BYMONTH": r"(?:[1-9]|1[0-2])",
    "BYMONTHDAY": r"[+-]?(?:[1-9]|[12][0-9]|3[01])",
    "BYDAY": rf"(?:[+-]?[1-5])?{_WEEKDAY}",
    "BYHOUR": r"(?:[0-9]|1[0-9]|2[0-3])",
    "BYSETPOS": r"[+-]?[1-9][0-9]{0,2}",
    "WKST": _WEEKDAY,
}
_LISTS: Final = frozenset({"BYMONTH", "BYMONTHDAY", "BYDAY", "BYHOUR", "BYSETPOS"})
_STEPS: Final = {"HOURLY": timedelta(hours=1), "DAILY": timedelta(days=1), "WEEKLY": timedelta(weeks=1)}
_MONTHS: Final = {"MONTHLY": 1, "YEARLY": 12}
_CYCLE_YEARS: Final = 400  # the calendar repeats after them, days of the week and leap years alike
_LAST_YEAR: Final = 9999  # where every rule ends
_END_MS: Final = MS_MAX - 366 * 86_400_000  # nothing begins in the last year: clocks ahead of UTC end with it earlier
_NO_ZONES: Final = frozenset({"localtime", "Factory"})  # names of files, not of places


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A rule, and the wall time from which it counts. `COUNT` begins with the first occurrence that there is."""

    rule: str  # as `checked_rule` writes it
    zone: str  # IANA name
    first: str  # wall time of the first occurrence, such as 2026-12-07T08:00:00


def checked_rule(text: str) -> str:
    """Return a recurrence rule as it is kept: upper case, its parts as they were written, without `RRULE:`.

    Raises:
        ValueError: Not a rule, or one that is not offered; the message says what is.
    """
    parts: dict[str, str] = {}
    for written in text.strip().upper().removeprefix("RRULE:").removesuffix(";").split(";"):
        name, _, value = written.partition("=")
        if name in parts:
            raise ValueError(f"{name} is given twice")
        parts[name] = value
    frequency = parts.get("FREQ", "")
    if frequency not in _TAKES:
        raise ValueError(
            f"begin with FREQ=, one of {', '.join(_TAKES)}, such as FREQ=WEEKLY;BYDAY=MO"
            + (": nothing comes more often than every hour" if frequency in {"SECONDLY", "MINUTELY"} else "")
        )
    for name, value in parts.items():
        if name not in _TAKES[frequency]:
            raise ValueError(f"{name or 'a part without a name'} does not go with {frequency}")
        _check_part(name, value, frequency)
    if "COUNT" in parts and "UNTIL" in parts:
        raise ValueError("give COUNT or UNTIL, not both")
    if "BYSETPOS" in parts and parts.keys().isdisjoint({"BYDAY", "BYMONTHDAY", "BYHOUR", "BYMONTH"}):
        raise ValueError("BYSETPOS chooses among what another BY part names")
    return ";".join(f"{name}={value}" for name, value in parts.items())


def _check_part(name: str, value: str, frequency: str) -> None:
    if name == "FREQ":
        return
    for one in value.split(",") if name in _LISTS else [value]:
        if not re.fullmatch(_VALUES[name], one):
            days = "; days are MO, TU, WE, TH, FR, SA and SU" if name == "BYDAY" else ""
            raise ValueError(f"{one[:20]!r} is no value of {name}{days}")
        if name == "BYDAY" and len(one) > len("MO") and frequency not in {"MONTHLY", "YEARLY"}:
            raise ValueError(f"{one} is a day of a month: it goes with FREQ=MONTHLY or FREQ=YEARLY")
    if name == "UNTIL":
        _until(value, UTC)


@cache
def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name.

    Raises:
        ValueError: There is none of this name.
    """
    if name in _NO_ZONES or name not in _zone_names():
        raise ValueError(f"there is no time zone {name!r}: use an IANA name such as Europe/Berlin, or UTC")
    return ZoneInfo(name)


@cache
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones())


def instant_of(wall: datetime, zone: tzinfo) -> int:
    """Return when clocks show a wall time, milliseconds UTC; how twice and never are read is told above."""
    return int(wall.replace(tzinfo=zone, fold=0).timestamp()) * 1000


def wall_time(instant_ms: int, zone: tzinfo) -> datetime:
    """Return what clocks show at an instant, to the second and without a zone."""
    return datetime.fromtimestamp(instant_ms // 1000, zone).replace(tzinfo=None, fold=0)


def shown(instant_ms: int, zone: tzinfo) -> str:
    """Return an instant as clocks show it, with their offset: RFC 3339, so that it can be given back."""
    return datetime.fromtimestamp(instant_ms // 1000, zone).isoformat()


def begun(rule: str, zone: str, at: time, day: date | None, now_ms: int) -> Recurrence | None:
    """Return a recurrence that begins with the first occurrence which is still ahead, whole.

    Args:
        rule: As `checked_rule` wrote it.
        zone: IANA name.
        at: Wall time of day of its occurrences; of the first one where the rule names hours or is `HOURLY`.
        day: From which the rule counts; None for today, on the clocks there.
        now_ms: An occurrence that began earlier is none: it would not be whole.

    Returns:
        None where the rule never has an occurrence from now on.

    Raises:
        ValueError: There is no such zone, or the rule contradicts itself.
    """
    clocks = zone_of(zone)
    anchor = datetime.combine(day or wall_time(now_ms, clocks).date(), at)
    endless = ";".join(part for part in rule.split(";") if not part.startswith("COUNT="))
    for wall, instant_ms in _walked(Recurrence(endless, zone, anchor.isoformat()), 0):
        if instant_ms >= now_ms:
            return Recurrence(rule, zone, wall.isoformat())
    return None


def occurrences(recurrence: Recurrence, from_ms: int, until_ms: int, limit: int) -> list[int]:
    """Return the first `limit` instants in `[from_ms, until_ms)` at which occurrences begin, rising, none twice.

    Cost: in occurrences between `from_ms` and the last one that is returned, or since the first where the rule has a
    `COUNT`.
    """
    instants = (instant_ms for _, instant_ms in _walked(recurrence, from_ms))
    return list(islice(_within(instants, from_ms, until_ms), limit))


def _within(instants: Iterator[int], from_ms: int, until_ms: int) -> Iterator[int]:
    last_ms = from_ms - 1
    for instant_ms in instants:
        if instant_ms >= until_ms:
            return
        if instant_ms > last_ms:  # two wall times of a day on which clocks are put forward may be one instant
            last_ms = instant_ms
            yield instant_ms


def _walked(recurrence: Recurrence, from_ms: int) -> Iterator[tuple[datetime, int]]:
    """Yield wall times and instants of the occurrences, beginning somewhat before `from_ms`.

    A rule that never fires is looked for to the end of the calendar. It is therefore read some hundred years before
    that end, in a year that is like its own.
    """
    if from_ms >= _END_MS:
        return
    zone = zone_of(recurrence.zone)
    parts = dict(part.split("=", 1) for part in recurrence.rule.split(";"))
    until_ms = _until(parts.pop("UNTIL"), zone) if "UNTIL" in parts else None
    begin, parts = _nearer(datetime.fromisoformat(recurrence.first), parts, from_ms, zone)
    later_years = (_LAST_YEAR - begin.year) // _CYCLE_YEARS * _CYCLE_YEARS
    rule = ";".join(f"{name}={value}" for name, value in parts.items())
    for distant in rrulestr(rule, dtstart=begin.replace(year=begin.year + later_years)):
        wall = distant.replace(year=distant.year - later_years)
        instant_ms = instant_of(wall, zone)
        if until_ms is not None and instant_ms > until_ms:
            return
        yield wall, instant_ms


def _nearer(first: datetime, parts: dict[str, str], from_ms: int, zone: tzinfo) -> tuple[datetime, dict[str, str]]:
    """Return a later start, and a rule from which the same occurrences follow then, some before `from_ms`.

    Whole steps of the rule lie between the two starts, so nothing else changes. With a COUNT the past must be counted.
    """
    frequency, interval = parts["FREQ"], int(parts.get("INTERVAL", "1"))
    if "COUNT" in parts:
        return first, parts
    # Clocks are never put back by a day; two steps more leave the week, month or year in which it began behind.
    until = wall_time(from_ms, zone) - timedelta(days=1)
    if frequency in _STEPS:
        step = _STEPS[frequency] * interval
        return first + step * max(0, (until - first) // step - 2), parts
    months = _MONTHS[frequency] * interval
    elapsed = (until.year - first.year) * 12 + until.month - first.month
    passed = (elapsed // months - 2) * months
    if passed <= 0:
        return first, parts
    years, month = divmod(first.month - 1 + passed, 12)
    return first.replace(year=first.year + years, month=month + 1, day=1), _with_day(first, parts)


def _with_day(first: datetime, parts: dict[str, str]) -> dict[str, str]:
    """Return a monthly or yearly rule with the day named that it would else take from its start."""
    if not parts.keys().isdisjoint({"BYDAY", "BYMONTHDAY"}):
        return parts
    month = {"BYMONTH": str(first.month)} if parts["FREQ"] == "YEARLY" else {}
    return {**month, **parts, "BYMONTHDAY": str(first.day)}


def _until(value: str, zone: tzinfo) -> int:
    """Return the last instant that `UNTIL` allows: an instant, a wall time, or the end of a day.

    Raises:
        ValueError: There is no such day or time.
    """
    day, _, clock = value.rstrip("Z").partition("T")
    try:
        wall = datetime.fromisoformat(f"{day}T{clock or '235959'}")
        return instant_of(wall, UTC if value.endswith("Z") else zone)
    except (ValueError, OverflowError):
        raise ValueError(f"{value} is no day or time: write UNTIL=20271231 or UNTIL=20271231T230000Z") from None
