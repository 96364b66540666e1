"""Instants, durations and windows, as both programs mean them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_shared.time import MS_MAX, Window, format_duration, format_instant, parse_duration, parse_instant

NOW_MS = 1_790_582_400_000  # 2026-09-28T08:00:00Z
instants = st.integers(0, MS_MAX - 1)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    start_ms = draw(st.integers(0, 20))
    return Window(start_ms, draw(st.integers(start_ms + 1, 21)))


@given(windows(), windows())
def test_windows_overlap_exactly_where_they_share_a_millisecond(one: Window, other: Window) -> None:
    shared = set(range(one.start_ms, one.end_ms)) & set(range(other.start_ms, other.end_ms))

    assert one.overlaps(other) == other.overlaps(one) == bool(shared)


def test_back_to_back_is_no_overlap_until_a_turnaround_lies_between() -> None:
    first, second = Window(0, 10), Window(10, 20)

    assert not first.overlaps(second)
    assert first.occupied(1).overlaps(second)
    assert not first.occupied(0).overlaps(second)


def test_what_a_window_occupies_never_reaches_beyond_the_last_year() -> None:
    assert Window(0, MS_MAX - 5).occupied(10) == Window(0, MS_MAX)


@pytest.mark.parametrize(("start_ms", "end_ms"), [(5, 5), (6, 5), (-1, 5), (0, MS_MAX + 1)])
def test_a_window_is_never_empty_negative_or_outside_the_calendar(start_ms: int, end_ms: int) -> None:
    with pytest.raises(ValueError, match="not a window"):
        Window(start_ms, end_ms)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90s", 90_000),
        ("30m", 1_800_000),
        ("12h", 43_200_000),
        ("3d", 259_200_000),
        ("1w", 604_800_000),
        ("250ms", 250),
        ("1h30m", 5_400_000),
        ("PT12H", 43_200_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("P2W", 1_209_600_000),
        ("PT0.25S", 250),
    ],
)
def test_a_duration_reads_as_written(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    ["", "0s", "0h0m", "-1h", "1", "h", "1.5h", "1 h", "1y", "P", "PT", "P1Y", "PT-1S", "PT0S", "9999999999d", "1h\n"],
)
def test_what_is_no_duration_or_no_time_at_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@given(st.integers(1, MS_MAX))
def test_a_written_duration_reads_as_at_most_itself_and_loses_less_than_its_second_unit(ms: int) -> None:
    read = parse_duration(format_duration(ms))

    assert read <= ms
    assert ms - read < max(ms // 24, 1)  # two units: a day and its hours are the coarsest pair
    assert format_duration(read) == format_duration(ms)


@given(instants)
def test_an_instant_reads_back_as_it_was_written(ms: int) -> None:
    assert parse_instant(format_instant(ms), 0) == ms
    assert parse_instant(str(ms), 0) == ms


@pytest.mark.parametrize("ms", [MS_MAX, MS_MAX + 1, 2**53])
def test_an_instant_past_the_last_year_is_shown_as_its_last_one(ms: int) -> None:
    assert format_instant(ms) == "9999-12-31T23:59:59.999Z"


@given(st.integers(0, MS_MAX // 1000 - 1), st.integers(-14 * 60, 14 * 60))
def test_an_offset_names_the_same_instant_elsewhere(seconds: int, minutes: int) -> None:
    elsewhere = timezone(timedelta(minutes=minutes))
    try:
        text = datetime.fromtimestamp(seconds, UTC).astimezone(elsewhere).isoformat()
    except OverflowError:  # the year 10000 over there
        return

    assert parse_instant(text, 0) == seconds * 1000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", NOW_MS),
        ("+2h", NOW_MS + 7_200_000),
        ("-7d", NOW_MS - 7 * 86_400_000),
        ("+PT90S", NOW_MS + 90_000),
        ("2026-09-28T08:00:00Z", NOW_MS),
        ("2026-09-28t08:00:00.5z", NOW_MS + 500),
        ("2026-09-28 10:00:00+02:00", NOW_MS),
        ("0", 0),
    ],
)
def test_an_instant_reads_as_written_on_the_clock_that_is_given(text: str, ms: int) -> None:
    assert parse_instant(text, NOW_MS) == ms


@pytest.mark.parametrize(
    "text",
    [
        *("-", "-0s", "-3650000d"),
        *("", "tomorrow", "2h", "+", "+0s", "1.5", "-1", " now", "1e3", "٣", "253402300800001"),
        *("2026-09-28", "2026-09-28T08:00", "2026-09-28T08:00:00", "2026-13-28T08:00:00Z", "2026-09-31T08:00:00Z"),
        *("1969-12-31T23:59:59Z", "2026-09-28T08:00:00+25:00", "0000-01-01T00:00:00Z", "2026-09-28T24:00:00Z"),
    ],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the sentence differs with what is wrong
        parse_instant(text, NOW_MS)


@given(st.text(max_size=30))
def test_no_text_brings_a_reader_down(text: str) -> None:
    for read in (parse_duration, lambda text: parse_instant(text, NOW_MS)):
        try:
            assert 0 <= read(text) <= MS_MAX
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (250, "250ms"), (90_000, "1m30s"), (43_200_000, "12h"), (90_061_001, "1d1h"), (3_600_001, "1h1ms")],
)
def test_a_duration_is_written_in_its_two_largest_units(ms: int, text: str) -> None:
    assert format_duration(ms) == text
