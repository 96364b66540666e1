"""A node's calendar: what is free for a whole window, and when it is free again."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Booked
from muster_coordinator.core.snapshot import FOREVER_MS, NodeView, Snapshot
from muster_shared.time import MS_MAX, Window
from tests.support.drawings import asked, nodes, pool

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


@pytest.mark.parametrize("relation", RELATIONS)
def test_windows_are_half_open_in_every_relation_that_two_can_have(relation: str) -> None:
    (start_ms, end_ms), overlaps = RELATIONS[relation]
    window = Window(start_ms, end_ms)

    assert view_of([Booked(4, 8, 0b1111, "rsv")]).free(window) == (0 if overlaps else 0b1111)
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
        assert view_of(booked).free_again_ms(wanted, count, window) == next(iter(fits), None)


def test_nobody_knows_when_a_hold_without_a_date_ends() -> None:
    held_for_ever = view_of([Booked(0, FOREVER_MS, 0b1111, "rsv")])

    assert held_for_ever.free_again_ms(0b1111, 1, Window(1, 2)) is None


def test_the_end_of_the_calendar_is_no_later_start() -> None:
    assert view_of([Booked(0, MS_MAX, 0b1111, "rsv")]).free_again_ms(0b1111, 1, Window(1, 2)) is None


@given(window=spans, turnaround=st.integers(0, 3))
def test_a_booking_keeps_others_out_for_its_turnaround_and_no_longer(window: Window, turnaround: int) -> None:
    occupied = window.occupied(turnaround)
    view = view_of([Booked(occupied.start_ms, occupied.end_ms, 1, "rsv")])
    first_free = next(ms for ms in range(window.start_ms, 30) if view.free(Window(ms, ms + 1)) & 1)

    assert first_free == window.end_ms + turnaround


def test_without_takes_out_one_reservation_and_leaves_the_first_pool_as_it_was() -> None:
    before = pool("a1 A ....").with_booking("a1", Booked(0, 9, 1, "mine")).with_booking("a1", Booked(0, 9, 2, "other"))

    after = before.without("mine")

    assert [view.views["a1"].free(Window(0, 9)) for view in (before, after)] == [0b1100, 0b1101]


def test_a_changed_pool_answers_for_its_own_bookings() -> None:
    def open_nodes(snapshot: Snapshot, *_: object) -> list[str]:
        return list(snapshot.views)

    first = pool("a1 A ....")
    first.once(open_nodes, asked().shape, None)
    second = first.with_booking("a1", Booked(0, 9, 0b1111, "rsv"))

    assert second.once(open_nodes, asked().shape, None) == ["a1"]
    assert (first.views["a1"].free(Window(0, 9)), second.views["a1"].free(Window(0, 9))) == (0b1111, 0)
