"""A node's calendar: what is free for a whole window, and when it is free again."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Booked
from muster_coordinator.core.snapshot import FOREVER_MS, NodeView, Snapshot
from muster_shared.time import MS_MAX, Window
from tests.support.drawings import nodes, pool

RELATIONS = {  # how [4, 8) stands to each window, after Allen; and whether the two share an instant
    "is before": ((9, 11), False),
    "meets": ((8, 11), False),
    "overlaps": ((6, 11), True),
    "starts": ((4, 11), True),
    "is during": ((2, 11), True),
    "finishes": ((2, 8), True),
    "equals": ((4, 8), True),
    "is finished by": ((6, 8), True),
    "contains": ((5, 7), True),
    "is started by": ((4, 6), True),
    "is overlapped by": ((2, 6), True),
    "is met by": ((2, 4), False),
    "is after": ((1, 3), False),
}

spans = st.tuples(st.integers(0, 11), st.integers(1, 6)).map(lambda span: Window(span[0], span[0] + span[1]))
bookings = st.lists(
    st.builds(lambda window, mask: Booked(window.start_ms, window.end_ms, mask, "rsv"), spans, st.integers(1, 15)),
    max_size=6,
)


def view_of(booked: list[Booked]) -> NodeView:
    ordered = sorted(booked, key=lambda one: one.start_ms)
    return NodeView(replace(nodes("a1 A ....")[0], booked=tuple(ordered)))


def free_at_every_instant(booked: list[Booked], window: Window) -> int:
    """The atoms that are free at each instant of the window, looked at one by one."""
    free = 0b1111
    for instant in range(window.start_ms, window.end_ms):
        for one in booked:
            if instant in range(one.start_ms, one.end_ms):
                free &= ~one.mask
    return free


def free_again_ms(booked: list[Booked], wanted: int, count: int, window: Window) -> int | None:
    def fits(bookable: int) -> int:
        return bookable if bookable.bit_count() >= count else 0

    return view_of(booked).free_again_ms(wanted, fits, window)


@pytest.mark.parametrize("relation", RELATIONS)
def test_windows_are_half_open_in_every_relation_that_two_can_have(relation: str) -> None:
    (start_ms, end_ms), overlaps = RELATIONS[relation]
    window = Window(start_ms, end_ms)
    booked = [Booked(4, 8, 0b1111, "rsv")]

    assert view_of(booked).free(window) == (0 if overlaps else 0b1111)
    assert Snapshot.of("pool", 1, [view_of(booked).node]).occupancy.during(window) == (0b1111 if overlaps else 0)
    assert Window(4, 8).overlaps(window) == overlaps


@given(booked=bookings, window=spans)
def test_free_means_free_at_every_instant_of_the_window(booked: list[Booked], window: Window) -> None:
    assert view_of(booked).free(window) == free_at_every_instant(booked, window)


@given(booked=bookings, window=spans, count=st.integers(1, 4), wanted=st.integers(1, 15))
def test_free_again_is_the_first_later_start_at_which_the_same_length_fits(
    booked: list[Booked], window: Window, count: int, wanted: int
) -> None:
    later = (Window(start, start + window.duration_ms) for start in range(window.start_ms + 1, 20))
    fits = [one.start_ms for one in later if (free_at_every_instant(booked, one) & wanted).bit_count() >= count]
    waits = (free_at_every_instant(booked, window) & wanted).bit_count() < count

    if waits:
        assert free_again_ms(booked, wanted, count, window) == next(iter(fits), None)


def test_nobody_knows_when_a_hold_without_a_date_ends() -> None:
    assert free_again_ms([Booked(0, FOREVER_MS, 0b1111, "rsv")], 0b1111, 1, Window(1, 2)) is None
    assert free_again_ms([Booked(0, FOREVER_MS, 1, "x"), Booked(0, 9, 14, "y")], 0b1111, 1, Window(1, 2)) == 9


def test_the_end_of_the_calendar_is_no_later_start() -> None:
    assert free_again_ms([Booked(0, MS_MAX, 0b1111, "rsv")], 0b1111, 1, Window(1, 2)) is None
    assert free_again_ms([Booked(0, MS_MAX - 1, 0b1111, "rsv")], 0b1111, 1, Window(1, 2)) == MS_MAX - 1
    assert free_again_ms([Booked(0, MS_MAX - 1, 0b1111, "rsv")], 0b1111, 1, Window(1, 3)) is None


@pytest.mark.parametrize(
    ("booked", "gaps"),
    [
        ([], (None, None)),
        ([Booked(0, 4, 1, "x")], (0, None)),
        ([Booked(0, 2, 1, "x"), Booked(2, 3, 2, "y")], (1, None)),
        ([Booked(2, 3, 2, "y"), Booked(0, 2, 1, "x")], (1, None)),
        ([Booked(8, 9, 1, "x")], (None, 0)),
        ([Booked(9, 10, 1, "x"), Booked(11, 12, 2, "y")], (None, 1)),
        ([Booked(11, 12, 2, "y"), Booked(9, 10, 1, "x")], (None, 1)),
        ([Booked(0, 1, 3, "x"), Booked(9, FOREVER_MS, 3, "y")], (3, 1)),
        ([Booked(0, 4, 4, "other atoms"), Booked(5, 7, 4, "other atoms")], (None, None)),
    ],
)
def test_a_gap_is_how_long_the_same_atoms_are_idle_before_and_after(
    booked: list[Booked], gaps: tuple[int | None, int | None]
) -> None:
    assert view_of(booked).gaps(0b0011, Window(4, 8)) == gaps


@given(window=spans, turnaround=st.integers(0, 3))
def test_a_booking_keeps_others_out_for_its_turnaround_and_no_longer(window: Window, turnaround: int) -> None:
    occupied = window.occupied(turnaround)
    view = view_of([Booked(occupied.start_ms, occupied.end_ms, 1, "rsv")])
    first_free = next(ms for ms in range(window.start_ms, 30) if view.free(Window(ms, ms + 1)) & 1)

    assert first_free == window.end_ms + turnaround


def test_without_takes_out_one_reservation_and_leaves_the_first_pool_as_it_was() -> None:
    before = pool("a1 A ....").with_booking("a1", Booked(0, 9, 1, "mine")).with_booking("a1", Booked(0, 9, 2, "other"))

    after = before.without("mine", ["a1", "a node that left"])

    assert [one.views["a1"].free(Window(0, 9)) for one in (before, after)] == [0b1100, 0b1101]
    assert [one.occupancy.during(Window(0, 9)) for one in (before, after)] == [0b0011, 0b0010]
    assert before.without("mine", []).views["a1"].free(Window(0, 9)) == 0b1100


@pytest.mark.parametrize(
    "names",
    [
        ["a1", "a2", "a10", "b1"],
        ["a", "a0", "a1", "ab"],
        ["2", "10", "a"],
        ["r1n2", "r1n10", "r2n1", "r10n1"],
        ["a1", "a01"][::-1],
    ],
)
def test_names_stand_in_the_order_in_which_people_count(names: list[str]) -> None:
    views = [NodeView(replace(nodes("a1 A .")[0], name=name)) for name in reversed(names)]

    assert [view.node.name for view in sorted(views, key=lambda view: view.place)] == names
