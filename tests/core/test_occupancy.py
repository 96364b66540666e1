"""The index of time: what it says of any window is what looking at every booking says."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core import occupancy
from muster_coordinator.core.model import Booked
from muster_coordinator.core.occupancy import Occupancy
from muster_coordinator.core.snapshot import FOREVER_MS
from muster_shared.time import MS_MAX, Window

NODES = 3
SPANS_MOST = 30

instants = st.integers(0, SPANS_MOST)
windows = st.tuples(instants, st.integers(1, SPANS_MOST)).map(lambda span: Window(span[0], span[0] + span[1]))
ends = st.one_of(st.integers(1, 9), st.just(FOREVER_MS), st.just(MS_MAX))
masks = st.one_of(st.integers(1, 15), st.just(1 << 63), st.just(1 << 64), st.just(1 << 127 | 1))
bookings = st.builds(
    lambda start_ms, lasts_ms, mask: Booked(start_ms, min(FOREVER_MS, start_ms + lasts_ms), mask, "rsv"),
    st.one_of(st.just(0), instants),
    ends,
    masks,
)
calendars = st.lists(st.lists(bookings, max_size=5), min_size=NODES, max_size=NODES)
changes = st.lists(st.dictionaries(st.integers(0, NODES - 1), st.lists(bookings, max_size=5)), max_size=4)
WIDE = 128


@contextmanager
def splitting_at(count: int) -> Iterator[None]:
    """Let buckets be split as early as small examples can show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occupancy, "SPLIT_AT", count)
        yield


def swept(calendar: Sequence[Sequence[Booked]], window: Window, lane_bits: int = WIDE) -> int:
    """The same answer by looking at every booking."""
    lanes = 0
    for number, booked in enumerate(calendar):
        for one in booked:
            if one.start_ms < window.end_ms and one.end_ms > window.start_ms:
                lanes |= one.mask << number * lane_bits
    return lanes


@given(calendar=calendars, window=windows, split_at=st.integers(1, 6))
def test_a_window_holds_what_every_booking_in_it_holds(
    calendar: list[list[Booked]], window: Window, split_at: int
) -> None:
    with splitting_at(split_at):
        index = Occupancy.of(WIDE, calendar)

    assert index.during(window) == swept(calendar, window)


@given(calendar=calendars, steps=changes, asked=st.lists(windows, min_size=1, max_size=5), split_at=st.integers(1, 4))
def test_after_any_changes_it_says_what_one_built_anew_says(
    calendar: list[list[Booked]],
    steps: list[dict[int, list[Booked]]],
    asked: list[Window],
    split_at: int,
) -> None:
    with splitting_at(split_at):
        index = Occupancy.of(WIDE, calendar)
        for step in steps:
            before, former = list(calendar), index
            for window in asked:
                former.during(window)  # so that what is kept for later is there
            calendar = [step.get(number, booked) for number, booked in enumerate(calendar)]
            index = former.changed({number: (before[number], after) for number, after in step.items()})

            for window in asked:
                assert index.during(window) == swept(calendar, window)
                assert former.during(window) == swept(before, window)


@given(
    calendar=calendars,
    steps=changes,
    now_ms=instants,
    asked=st.lists(windows, min_size=1, max_size=5),
    split_at=st.integers(1, 4),
)
def test_what_is_past_is_forgotten_and_nothing_else(
    calendar: list[list[Booked]],
    steps: list[dict[int, list[Booked]]],
    now_ms: int,
    asked: list[Window],
    split_at: int,
) -> None:
    with splitting_at(split_at):
        index = Occupancy.of(WIDE, calendar).since(now_ms)
        for step in steps:
            changed = {number: (calendar[number], after) for number, after in step.items()}
            calendar = [step.get(number, booked) for number, booked in enumerate(calendar)]
            index = index.changed(changed).since(now_ms)

        for window in asked:
            later = Window(window.start_ms + now_ms, window.end_ms + now_ms)
            assert index.during(later) == swept(calendar, later)
            assert index.edges_after(0) == tuple(edge for edge in index.edges_after(0) if edge > now_ms)


def test_buckets_that_ended_are_gone_and_the_one_that_holds_now_is_kept() -> None:
    back_to_back = [[Booked(at, at + 1, 1, "rsv") for at in range(9)]]
    with splitting_at(1):
        index = Occupancy.of(64, back_to_back)

    assert index.edges_after(0) == tuple(range(1, 9))
    assert index.edges_after(4) == tuple(range(5, 9))
    assert index.since(4).edges_after(0) == tuple(range(5, 9))
    assert index.since(3).edges_after(0) == tuple(range(4, 9))
    assert index.since(0) is index
    assert [index.since(4).during(Window(at, at + 1)) for at in (4, 8, 9)] == [1, 1, 0]


@given(calendar=calendars, asked=windows)
def test_every_instant_at_which_a_bucket_begins_is_one_at_which_a_booking_does_or_ends(
    calendar: list[list[Booked]], asked: Window
) -> None:
    with splitting_at(1):
        edges = Occupancy.of(WIDE, calendar).edges_after(asked.start_ms)
    instants = {instant for booked in calendar for one in booked for instant in (one.start_ms, one.end_ms)}

    assert list(edges) == sorted(set(edges))
    assert set(edges) <= {instant for instant in instants if instant > asked.start_ms}


@pytest.mark.parametrize("many", [1, 2, 40, 300])
def test_windows_over_many_buckets_are_added_up_from_blocks_of_them(many: int) -> None:
    calendar = [[Booked(2 * at, 2 * at + 1, 1 << at % 60, "rsv") for at in range(many)]]
    with splitting_at(1):
        index = Occupancy.of(64, calendar)
        for start_ms in range(0, 2 * many, 7):
            for lasts_ms in (1, 2, 31, 32, 33, 64, 65, 2 * many):
                window = Window(start_ms, start_ms + lasts_ms)
                assert index.during(window) == swept(calendar, window)
        whole = Window(0, 2 * many)
        moved = [[*calendar[0][:-1], Booked(500, 501, 1 << 61, "rsv")]]
        changed = index.changed({0: (calendar[0], moved[0])})

        # What was added up before the change is not what is there after it.
        assert changed.during(Window(0, 600)) == swept(moved, Window(0, 600))
        assert changed.during(whole) == swept(moved, whole)


def test_a_bucket_that_fills_up_is_split_where_bookings_begin_and_end() -> None:
    full = occupancy.SPLIT_AT
    first = [Booked(at, at + 3, 1, "rsv") for at in range(0, 9 * full, 9)]
    more = [Booked(at + step, at + step + 3, 2 << step, "rsv") for at in range(0, 9 * full, 9) for step in range(1, 6)]
    index = Occupancy.of(64, [first, []])
    later = index.changed({1: ((), more[:full])}).changed({1: (more[:full], more)})

    middle = index.edges_after(0)[0] // 2
    assert any(abs(edge - middle) < full // 8 for edge in later.edges_after(0))
    for start_ms in (0, 5, 6, 9 * full // 2, 9 * full - 4, 9 * full):
        window = Window(start_ms, start_ms + 2)
        assert later.during(window) == swept([first, more], window, 64)


def test_bookings_that_all_begin_and_end_together_are_split_until_none_is_looked_at_alone() -> None:
    alike = [[Booked(5, 10, 1, f"rsv{at}")] for at in range(8)]
    with splitting_at(1):
        index = Occupancy.of(64, [[] for _ in alike])
        for number, booked in enumerate(alike):
            index = index.changed({number: ((), booked)})

        assert index.edges_after(0) == (5, 10)
        for window in (Window(0, 5), Window(4, 6), Window(5, 10), Window(9, 11), Window(10, 11)):
            assert index.during(window) == swept(alike, window, 64)


def test_an_empty_pool_has_nothing_booked() -> None:
    assert Occupancy.of(64, []).during(Window(0, MS_MAX)) == 0
    assert Occupancy.of(64, [[], []]).changed({}).during(Window(0, 1)) == 0
