"""How far a booking can be extended in place: until the next one on any of its atoms, and as the pool allows."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Booked, Policy, Reservation
from muster_coordinator.core.snapshot import FOREVER_MS, Snapshot
from muster_coordinator.core.timeline.reach import Limit, longest_end
from muster_shared.time import MS_MAX, Window
from tests.support.drawings import OTHERS, OURS, WINDOW, placed, pool, with_gang

GANG = placed("a1:01 a2:01", 2, count=2)
END_MS = WINDOW.end_ms
DRAWING = "a1 A ....\na2 A ....\na3 A ...."
POLICY = Policy(max_duration_ms=10_000)


def reach(*others: tuple[str, int, int, int], gang: Reservation = GANG, policy: Policy = POLICY) -> tuple[int, Limit]:
    """Return the longest end and its limit beside bookings `(node, mask, start, end)` of others."""
    snapshot = with_gang(pool(DRAWING), gang)
    found = longest_end(gang, with_others(snapshot, *others), policy, 0)
    return found.end_ms, found.limit


def with_others(snapshot: Snapshot, *others: tuple[str, int, int, int]) -> Snapshot:
    for node_id, mask, start_ms, end_ms in others:
        snapshot = snapshot.with_booking(node_id, Booked(start_ms, end_ms, mask, OTHERS))
    return snapshot


def test_nothing_behind_it_leaves_what_the_pool_allows() -> None:
    assert reach() == (WINDOW.start_ms + 10_000, Limit("maxDuration"))


def test_the_first_booking_on_any_of_its_atoms_is_the_limit() -> None:
    found = reach(("a1", 0b0010, 5_000, 6_000), ("a2", 0b0001, 4_000, 4_500), ("a2", 0b0001, 4_600, 9_000))

    assert found == (4_000, Limit("booked", "a2", OTHERS, 4_000, 4_500))


def test_other_atoms_and_other_nodes_are_nobodys_limit() -> None:
    assert reach(("a1", 0b1100, 2_000, 9_000), ("a3", 0b0011, 2_000, 9_000))[1] == Limit("maxDuration")


def test_the_turnaround_is_kept_before_the_next_booking_and_never_shortens() -> None:
    gaps = replace(POLICY, turnaround_ms=300)

    assert reach(("a1", 1, 3_000, 4_000), policy=gaps)[0] == 2_700
    assert reach(("a1", 1, END_MS + 100, 4_000), policy=gaps)[0] == END_MS


def test_its_own_bookings_and_what_nobody_has_let_go_of_are_no_limit() -> None:
    snapshot = with_gang(pool(DRAWING), GANG).with_booking("a1", Booked(0, FOREVER_MS, 1, ""))
    snapshot = snapshot.with_booking("a2", Booked(5_000, 6_000, 1, OURS))

    assert longest_end(GANG, snapshot, POLICY, 0).limit == Limit("maxDuration")


def test_a_node_that_has_left_the_pool_is_no_limit() -> None:
    snapshot = with_gang(pool(DRAWING), GANG).without_nodes(["a2"])

    assert longest_end(GANG, snapshot, POLICY, 0).limit == Limit("maxDuration")


def test_a_pool_that_looks_less_far_ahead_by_now_extends_nothing_that_starts_beyond() -> None:
    near = replace(POLICY, look_ahead_ms=WINDOW.start_ms - 1)

    assert reach(policy=near) == (END_MS, Limit("lookAhead"))
    assert reach(policy=replace(near, look_ahead_ms=WINDOW.start_ms))[1] == Limit("maxDuration")


def test_a_pool_that_allows_less_by_now_cuts_nothing() -> None:
    assert reach(policy=replace(POLICY, max_duration_ms=1)) == (END_MS, Limit("maxDuration"))


def test_nothing_ends_after_the_calendar() -> None:
    assert reach(policy=replace(POLICY, max_duration_ms=MS_MAX)) == (MS_MAX, Limit("calendarEnd"))


def test_without_members_only_the_pool_is_the_limit() -> None:
    pending = replace(GANG, members=())

    assert longest_end(pending, with_others(pool(DRAWING), ("a1", 1, 3_000, 4_000)), POLICY, 0).end_ms == 11_000


RELATIONS = {
    "before": (1_200, 1_800),
    "meets": (1_500, 2_000),
    "overlaps": (1_500, 2_500),
    "starts": (2_000, 2_500),
    "during": (2_200, 2_800),
    "finishes": (2_500, 3_000),
    "equals": (2_000, 3_000),
    "finished by": (1_500, 3_000),
    "contains": (1_500, 3_500),
    "started by": (2_000, 3_500),
    "overlapped by": (2_500, 3_500),
    "met by": (3_000, 3_500),
    "after": (3_200, 3_500),
}


@pytest.mark.parametrize("relation", RELATIONS)
def test_each_of_the_thirteen_interval_relations_is_judged_as_windows_overlap(relation: str) -> None:
    """R42: the wished extension is [2000, 3000); what began before our end is maintenance that waits for us."""
    start_ms, end_ms = RELATIONS[relation]

    is_granted = reach(("a1", 1, start_ms, end_ms))[0] >= 3_000

    assert is_granted is not Window(2_000, 3_000).overlaps(Window(start_ms, end_ms))


BOOKINGS = st.lists(
    st.tuples(st.sampled_from(["a1", "a2", "a3"]), st.integers(1, 15), st.integers(0, 60), st.integers(1, 30)),
    max_size=8,
)


@given(BOOKINGS, st.integers(0, 7))
def test_every_end_up_to_the_longest_is_free_and_none_beyond(
    others: list[tuple[str, int, int, int]], turnaround_ms: int
) -> None:
    gang = placed("a1:01 a2:12", 2, count=2, window=Window(10, 20))
    policy = Policy(max_duration_ms=50, turnaround_ms=turnaround_ms)
    snapshot = with_others(
        with_gang(pool(DRAWING), gang), *((node, mask, start, start + length) for node, mask, start, length in others)
    )

    def is_free(end_ms: int) -> bool:
        added = Window(20, end_ms + turnaround_ms)
        return not any(
            added.overlaps(Window(start, start + length))
            for node, mask, start, length in others
            for member in gang.members
            if member.node_id == node and member.mask & mask
        )

    longest = max((end for end in range(21, 61) if is_free(end)), default=20)

    assert longest_end(gang, snapshot, policy, 0).end_ms == longest
