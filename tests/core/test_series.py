"""When a series comes again: rules, clocks that are put forward and back, and rules that never fire."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from time import process_time

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as some

from muster_coordinator.core.series import (
    Recurrence,
    begun,
    checked_rule,
    instant_of,
    occurrences,
    shown,
    wall_time,
    zone_of,
)
from muster_shared.time import MS_MAX, parse_instant

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
HOUR = 3_600_000
DAY = 24 * HOUR


def at(text: str) -> int:
    return parse_instant(text, 0)


def starts(rule: str, zone: str, first: str, count: int, since: str = "1970-01-02T00:00:00Z") -> list[str]:
    """Return the first occurrences as clocks show them, with their offset."""
    recurrence = Recurrence(checked_rule(rule), zone, first)
    return [shown(one, zone_of(zone)) for one in occurrences(recurrence, at(since), MS_MAX, count)]


def first_of(rule: str, now: str, zone: str = "UTC", clock: time = time(10), day: date | None = None) -> str | None:
    found = begun(checked_rule(rule), zone, clock, day, at(now))
    return None if found is None else found.first


@pytest.mark.parametrize(
    ("zone", "first", "expected"),
    [
        (BERLIN, "2027-03-27T08:00:00", ["2027-03-27T08:00:00+01:00", "2027-03-28T08:00:00+02:00"]),
        (BERLIN, "2027-10-30T08:00:00", ["2027-10-30T08:00:00+02:00", "2027-10-31T08:00:00+01:00"]),
        (NEW_YORK, "2027-03-13T08:00:00", ["2027-03-13T08:00:00-05:00", "2027-03-14T08:00:00-04:00"]),
        (NEW_YORK, "2027-11-06T08:00:00", ["2027-11-06T08:00:00-04:00", "2027-11-07T08:00:00-05:00"]),
        ("UTC", "2027-03-27T08:00:00", ["2027-03-27T08:00:00+00:00", "2027-03-28T08:00:00+00:00"]),
    ],
)
def test_wall_time_stays_the_same_when_clocks_change(zone: str, first: str, expected: list[str]) -> None:
    assert starts("FREQ=DAILY", zone, first, 2) == expected


@pytest.mark.parametrize(
    ("zone", "first", "expected"),
    [
        (
            BERLIN,
            "2027-03-27T02:30:00",
            ["2027-03-27T02:30:00+01:00", "2027-03-28T03:30:00+02:00", "2027-03-29T02:30:00+02:00"],
        ),
        (
            NEW_YORK,
            "2027-03-13T02:30:00",
            ["2027-03-13T02:30:00-05:00", "2027-03-14T03:30:00-04:00", "2027-03-15T02:30:00-04:00"],
        ),
    ],
)
def test_a_wall_time_that_does_not_exist_begins_an_hour_later_on_that_day_alone(
    zone: str, first: str, expected: list[str]
) -> None:
    assert starts("FREQ=DAILY", zone, first, 3) == expected


@pytest.mark.parametrize(
    ("zone", "first", "expected"),
    [
        (
            BERLIN,
            "2027-10-30T02:30:00",
            ["2027-10-30T02:30:00+02:00", "2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"],
        ),
        (
            NEW_YORK,
            "2027-11-06T01:30:00",
            ["2027-11-06T01:30:00-04:00", "2027-11-07T01:30:00-04:00", "2027-11-08T01:30:00-05:00"],
        ),
    ],
)
def test_a_wall_time_that_exists_twice_is_the_first_of_the_two(zone: str, first: str, expected: list[str]) -> None:
    assert starts("FREQ=DAILY", zone, first, 3) == expected


def test_a_series_that_begins_on_a_wall_time_that_does_not_exist_keeps_it_for_the_days_after() -> None:
    found = begun("FREQ=DAILY", BERLIN, time(2, 30), None, at("2027-03-27T12:00:00Z"))

    assert found == Recurrence("FREQ=DAILY", BERLIN, "2027-03-28T02:30:00")
    assert starts("FREQ=DAILY", BERLIN, found.first, 2) == ["2027-03-28T03:30:00+02:00", "2027-03-29T02:30:00+02:00"]


def test_two_wall_times_that_are_one_instant_are_one_occurrence() -> None:
    hours = starts("FREQ=HOURLY", BERLIN, "2027-03-28T01:00:00", 3)

    assert hours == ["2027-03-28T01:00:00+01:00", "2027-03-28T03:00:00+02:00", "2027-03-28T04:00:00+02:00"]


@pytest.mark.parametrize(
    ("rule", "now", "expected"),
    [
        ("FREQ=DAILY", "2027-01-15T10:30:00Z", "2027-01-16T10:00:00"),
        ("FREQ=DAILY", "2027-01-15T10:00:00Z", "2027-01-15T10:00:00"),
        ("FREQ=DAILY", "2027-01-15T10:00:00.001Z", "2027-01-16T10:00:00"),
        ("FREQ=DAILY;COUNT=1", "2027-01-15T10:30:00Z", "2027-01-16T10:00:00"),
        ("FREQ=WEEKLY", "2027-01-15T10:30:00Z", "2027-01-22T10:00:00"),
        ("FREQ=WEEKLY;BYDAY=MO", "2027-01-15T10:30:00Z", "2027-01-18T10:00:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR", "2027-01-15T10:30:00Z", "2027-01-25T10:00:00"),
        ("FREQ=MONTHLY;BYDAY=-1SU", "2027-01-15T10:30:00Z", "2027-01-31T10:00:00"),
        ("FREQ=MONTHLY;BYMONTHDAY=31", "2027-02-01T00:00:00Z", "2027-03-31T10:00:00"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", "2027-02-01T00:00:00Z", "2028-02-29T10:00:00"),
        ("FREQ=DAILY;BYHOUR=6,18", "2027-01-15T10:30:00Z", "2027-01-15T18:00:00"),
    ],
)
def test_r39_the_first_occurrence_is_the_first_that_is_still_ahead_whole(rule: str, now: str, expected: str) -> None:
    assert first_of(rule, now) == expected


def test_the_window_that_is_looked_at_is_half_open() -> None:
    daily = Recurrence("FREQ=DAILY", "UTC", "2027-01-15T10:00:00")
    first_ms = at("2027-01-15T10:00:00Z")

    assert occurrences(daily, first_ms, first_ms + DAY, 9) == [first_ms]
    assert occurrences(daily, first_ms + 1, first_ms + DAY + 1, 9) == [first_ms + DAY]


def test_count_begins_with_the_first_occurrence_that_there_is() -> None:
    found = begun("FREQ=DAILY;COUNT=3", "UTC", time(10), None, at("2027-01-15T10:30:00Z"))

    assert found is not None
    assert [shown(one, UTC)[:10] for one in occurrences(found, 0, MS_MAX, 9)] == [
        "2027-01-16",
        "2027-01-17",
        "2027-01-18",
    ]


@pytest.mark.parametrize(
    ("until", "days"),
    [("20270117", 3), ("20270117T090000", 3), ("20270117T085959", 2), ("20270117T080000Z", 3), ("20270117T075959Z", 2)],
)
def test_until_is_the_last_day_or_instant_that_counts(until: str, days: int) -> None:
    assert len(starts(f"FREQ=DAILY;UNTIL={until}", BERLIN, "2027-01-15T09:00:00", 9)) == days


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("", "FREQ="),
        ("FREQ=SECONDLY", "every hour"),
        ("FREQ=MINUTELY;INTERVAL=90", "every hour"),
        ("FREQ=FORTNIGHTLY", "one of"),
        ("INTERVAL=2", "FREQ="),
        ("FREQ=DAILY;FREQ=DAILY", "twice"),
        ("FREQ=DAILY;;", "without a name"),
        ("FREQ=DAILY;DTSTART=20270101", "does not go with"),
        ("FREQ=DAILY;BYMINUTE=5", "does not go with"),
        ("FREQ=DAILY;BYMONTHDAY=5", "does not go with"),
        ("FREQ=HOURLY;BYHOUR=5", "does not go with"),
        ("FREQ=DAILY;BYSETPOS=1", "does not go with"),
        ("FREQ=DAILY;INTERVAL=0", "no value of INTERVAL"),
        ("FREQ=DAILY;INTERVAL=-1", "no value of INTERVAL"),
        ("FREQ=DAILY;INTERVAL=1000", "no value of INTERVAL"),
        ("FREQ=DAILY;COUNT=0", "no value of COUNT"),
        ("FREQ=DAILY;COUNT=1000000", "no value of COUNT"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20280101", "not both"),
        ("FREQ=DAILY;UNTIL=20270230", "no day or time"),
        ("FREQ=DAILY;UNTIL=20270228T250000", "no day or time"),
        ("FREQ=DAILY;UNTIL=tomorrow", "no value of UNTIL"),
        ("FREQ=WEEKLY;BYDAY=XX", "no value of BYDAY"),
        ("FREQ=WEEKLY;BYDAY=", "no value of BYDAY"),
        ("FREQ=WEEKLY;BYDAY=2MO", "day of a month"),
        ("FREQ=MONTHLY;BYDAY=6MO", "no value of BYDAY"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "no value of BYMONTHDAY"),
        ("FREQ=MONTHLY;BYSETPOS=1", "another BY part"),
        ("FREQ=YEARLY;BYMONTH=13", "no value of BYMONTH"),
        ("FREQ=DAILY;BYHOUR=24", "no value of BYHOUR"),
        ("FREQ=DAILY\nFREQ=DAILY", "one of"),
    ],
)
def test_a_rule_that_is_not_offered_is_refused_with_what_is(rule: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        checked_rule(rule)


def test_a_rule_is_kept_as_it_was_written_in_upper_case() -> None:
    assert checked_rule(" rrule:freq=weekly;byday=mo,we; ") == "FREQ=WEEKLY;BYDAY=MO,WE"


@pytest.mark.parametrize(
    "name", ["", "Berlin", "Europe", "localtime", "../etc/passwd", "/etc/localtime", "Europe/Berlin\0"]
)
def test_a_zone_is_one_of_the_iana_database(name: str) -> None:
    with pytest.raises(ValueError, match="there is no time zone"):
        zone_of(name)


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30,31",
        "FREQ=MONTHLY;BYDAY=5MO;BYMONTHDAY=1",
        "FREQ=MONTHLY;BYSETPOS=300;BYDAY=MO",
        "FREQ=MONTHLY;INTERVAL=12;BYMONTH=2",
        "FREQ=DAILY;INTERVAL=7;BYDAY=TU",
        "FREQ=HOURLY;INTERVAL=168;BYDAY=TU",
        "FREQ=DAILY;UNTIL=20200101",
    ],
)
def test_a_rule_that_never_fires_is_found_out_and_at_little_cost(rule: str) -> None:
    began = process_time()

    assert first_of(rule, "2027-01-15T09:00:00Z") is None
    assert process_time() - began < 2


OFTEN = f"BYHOUR={','.join(map(str, range(24)))};BYDAY=MO,TU,WE,TH,FR,SA,SU"


@pytest.mark.parametrize(
    "rule",
    [
        *("FREQ=HOURLY", "FREQ=HOURLY;INTERVAL=5", "FREQ=DAILY;BYMONTH=2", "FREQ=WEEKLY;INTERVAL=3"),
        *(f"FREQ=MONTHLY;{OFTEN}", f"FREQ=YEARLY;{OFTEN}"),
    ],
)
def test_a_series_that_is_very_old_costs_no_more_than_a_young_one(rule: str) -> None:
    old = Recurrence(rule, BERLIN, "2027-01-15T09:00:00")
    began = process_time()

    found = occurrences(old, at("2387-01-15T00:00:00Z"), MS_MAX, 2)
    occurrences(old, at("9998-12-15T00:00:00Z"), MS_MAX, 2)

    assert len(found) == 2
    assert process_time() - began < 1


@pytest.mark.parametrize("from_ms", [0, MS_MAX, MS_MAX - DAY, at("9999-12-31T23:59:59Z")])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_edges_of_the_calendar_are_no_error(from_ms: int, zone: str) -> None:
    recurrence = Recurrence("FREQ=DAILY", zone, "2027-01-15T09:00:00")

    assert bool(occurrences(recurrence, from_ms, MS_MAX, 1)) == (from_ms == 0)


def test_a_rule_that_counts_from_the_last_day_of_the_calendar_is_no_error() -> None:
    assert first_of("FREQ=DAILY", "2027-01-15T09:00:00Z", day=date(9999, 12, 31)) == "9999-12-31T10:00:00"


UNHURRIED = settings(deadline=None, max_examples=60)  # the rule read from its start takes its time
FIRSTS = some.datetimes(datetime.fromisoformat("2027-01-01"), datetime.fromisoformat("2032-01-01"))
RULES = [
    "FREQ=HOURLY",
    "FREQ=HOURLY;INTERVAL=5",
    "FREQ=HOURLY;INTERVAL=7;BYDAY=MO,TU",
    "FREQ=DAILY",
    "FREQ=DAILY;INTERVAL=3",
    "FREQ=DAILY;BYHOUR=0,6,23",
    "FREQ=DAILY;INTERVAL=2;BYDAY=MO,WE;COUNT=20",
    "FREQ=WEEKLY",
    "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR;WKST=SU",
    "FREQ=WEEKLY;INTERVAL=3;BYDAY=SU,MO;WKST=MO",
    "FREQ=MONTHLY;BYMONTHDAY=-1,15",
    "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
    "FREQ=MONTHLY",
    "FREQ=MONTHLY;INTERVAL=5;BYHOUR=3",
    "FREQ=MONTHLY;BYMONTH=2,3;BYMONTHDAY=29,31",
    "FREQ=YEARLY",
    "FREQ=YEARLY;INTERVAL=3;BYMONTH=2,12",
    "FREQ=YEARLY;BYMONTHDAY=31",
    "FREQ=YEARLY;BYDAY=-1SU;BYHOUR=4,5",
    "FREQ=YEARLY;BYMONTH=1,7;BYDAY=1MO",
]


@UNHURRIED
@given(
    rule=some.sampled_from(RULES),
    first=FIRSTS,
    days=some.integers(-40, 300) | some.integers(300, 9_000),
)
def test_wherever_one_begins_to_look_the_same_occurrences_follow(rule: str, first: datetime, days: int) -> None:
    """Against the whole rule read from its start, in a zone whose clocks do not change."""
    begin = first.replace(second=0, microsecond=0)
    walls = rrulestr(rule, dtstart=begin)
    since = begin + timedelta(days=days)

    found = occurrences(Recurrence(rule, "UTC", begin.isoformat()), instant_of(since, UTC), MS_MAX, 5)

    assert [wall_time(one, UTC) for one in found] == list(islice((one for one in walls if one >= since), 5))


@UNHURRIED
@given(
    rule=some.sampled_from(RULES),
    first=FIRSTS,
    days=some.integers(0, 300),
    zone=some.sampled_from([BERLIN, NEW_YORK, "Australia/Lord_Howe", "America/St_Johns"]),
)
def test_occurrences_rise_and_show_the_walls_of_the_rule_wherever_these_exist(
    rule: str, first: datetime, days: int, zone: str
) -> None:
    begin = first.replace(second=0, microsecond=0)
    clocks = zone_of(zone)
    from_ms = instant_of(begin + timedelta(days=days), clocks)

    found = occurrences(Recurrence(rule, zone, begin.isoformat()), from_ms, from_ms + 30 * DAY, 40)

    assert found == sorted(set(found))
    walls = set(rrulestr(rule, dtstart=begin).between(begin, begin + timedelta(days=days + 32), inc=True))
    for one in found:
        wall = wall_time(one, clocks)
        assert wall in walls or any(instant_of(other, clocks) == one for other in walls)
