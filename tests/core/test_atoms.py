"""Which atoms a node gives, drawn: `.` free, `#` booked, `x` on hold, `|` between NVLink islands."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Booked
from muster_coordinator.core.placement.atoms import pick_atoms, why_none
from muster_coordinator.core.placement.filters import standing
from muster_shared.devices import Topology, atom_numbers
from tests.support.drawings import KEY, asked, pool

ISLANDS = (0b0000_1111, 0b0011_0000, 0b1100_0000)

shapes = st.sampled_from(["any", "nvlink-all"])


def picked(atoms: str, count: int, topology: Topology) -> str:
    """Draw what a node gives of `atoms`, or the reason why it gives nothing."""
    request = asked(count, topology=topology)
    snapshot = pool(f"a1 A {atoms}")
    one = snapshot.once(standing, request.shape, KEY).open["A"][0]
    bookable = snapshot.views["a1"].free(request.window) & one.usable
    mask = pick_atoms(bookable, one.islands, count, topology)
    return "".join(map(str, atom_numbers(mask))) if mask else why_none(snapshot.views["a1"], one, request).code


@pytest.mark.parametrize(
    ("atoms", "count", "topology", "gives"),
    [
        # The smallest island that fits, so that whole islands stay whole; lowest numbers first.
        ("....|..", 2, "nvlink-all", "45"),
        ("....|..", 3, "nvlink-all", "012"),
        ("#...|....", 3, "nvlink-all", "123"),
        ("....|....", 4, "nvlink-all", "0123"),
        # Never across two islands.
        ("..##|..##", 3, "nvlink-all", "islandBooked"),
        ("....|....", 5, "any", "01234"),
        # The most broken islands first.
        ("....|.###", 1, "any", "4"),
        ("....|.##.", 3, "any", "047"),
        # Held atoms are not given, and are told apart from booked ones.
        ("xx..", 2, "any", "23"),
        ("xx..", 3, "any", "held"),
        ("x#..", 3, "any", "held"),
        ("##..", 3, "any", "booked"),
        ("xx##", 2, "any", "held"),  # two wait for no one but the hold
        ("x###", 2, "any", "booked"),
        ("xxx#", 2, "any", "held"),
        ("x#..", 4, "any", "held"),  # both stand in the way, and nobody knows until when
        # An island broken by holds is no booked one.
        ("x...|x...", 4, "nvlink-all", "held"),
        ("#...|x...", 4, "nvlink-all", "held"),
        ("#...|#...", 4, "nvlink-all", "islandBooked"),
    ],
)
def test_a_node_gives_these_atoms_or_this_reason(atoms: str, count: int, topology: Topology, gives: str) -> None:
    assert picked(atoms, count, topology) == gives


@given(bookable=st.integers(0, 255), count=st.integers(1, 8), topology=shapes)
def test_atoms_are_given_exactly_where_some_choice_of_them_would_do(
    bookable: int, count: int, topology: Topology
) -> None:
    choices = [set(choice) for choice in combinations(atom_numbers(bookable), count)]
    if topology == "nvlink-all":
        choices = [choice for choice in choices if any(choice <= set(atom_numbers(island)) for island in ISLANDS)]

    given_mask = pick_atoms(bookable, ISLANDS, count, topology)

    assert (set(atom_numbers(given_mask)) in choices) if choices else given_mask == 0


@given(bookable=st.integers(0, 255), count=st.integers(1, 8), topology=shapes)
def test_no_whole_island_is_broken_while_a_broken_one_would_do(bookable: int, count: int, topology: Topology) -> None:
    given_mask = pick_atoms(bookable, ISLANDS, count, topology)
    left = [(island & bookable).bit_count() for island in ISLANDS]
    touched = [(island & bookable).bit_count() for island in ISLANDS if island & given_mask]

    if topology == "nvlink-all" and given_mask:
        assert touched == [min(free for free in left if free >= count)]


def test_the_same_atoms_must_be_free_for_the_whole_window() -> None:
    # One atom is free at every instant, but not the same one.
    start_ms, end_ms = asked().window.start_ms, asked().window.end_ms
    middle_ms = (start_ms + end_ms) // 2
    crossed = pool("a1 A ..").with_booking("a1", Booked(start_ms, middle_ms, 0b01, "x"))
    crossed = crossed.with_booking("a1", Booked(middle_ms, end_ms, 0b10, "y"))

    assert pick_atoms(crossed.views["a1"].free(asked().window), (0b11,), 1, "any") == 0
