"""Which atoms a node gives, drawn: `.` free, `#` booked, `x` on hold, `|` between NVLink islands."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.layout import layout_of
from muster_coordinator.core.model import Atom, Booked, Entry, Node, Request
from muster_coordinator.core.placement.atoms import pick_atoms
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_shared.devices import Topology, atom_numbers
from tests.support.any_pool import HOSTS, shapes
from tests.support.drawings import asked, devices, drawn_mask, pool
from tests.support.oracle import belongs_together, choices

EIGHT = devices("....|..|..", "aabbaabb")
ISLANDS = (0b0000_1111, 0b0011_0000, 0b1100_0000)
GPU_OF_TWO, GPU_OF_FOUR = Entry("gpu", 2), Entry("gpu", 4)
TWO_MIG, TWO_SLOTS = Entry("mig", 2), Entry("slot", 2)

topologies = st.sampled_from(["any", "nvlink-all", "numa"])


def node_of(host: tuple[Atom, ...]) -> Node:
    return Node("a1", "a1", {}, host)


def picked(line: str, request: Request) -> str:
    """Draw what a node gives, or the reason why it gives nothing."""
    answer = plan(pool(f"a1 A {line}"), request)
    if isinstance(answer, Plan):
        return drawn_mask(answer.members[0].mask)
    (blocker,) = answer.blockers
    return blocker.code


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
        # A NUMA node is asked for in the same way, and has islands of its own.
        (".... numa:abab", 2, "numa", "02"),
        ("#... numa:abab", 2, "numa", "13"),
        ("..|.. numa:aabb", 3, "numa", "noSuchIsland"),
        ("#..# numa:abab", 2, "numa", "islandBooked"),
        ("x..# numa:abab", 2, "numa", "held"),
        ("....", 2, "numa", "noSuchIsland"),  # the host does not say
    ],
)
def test_a_node_gives_these_atoms_or_this_reason(atoms: str, count: int, topology: Topology, gives: str) -> None:
    assert picked(atoms, asked(count, topology=topology)) == gives


@pytest.mark.parametrize(
    ("atoms", "entries", "gives"),
    [
        ("..[...](....)", (Entry("gpu", 1), Entry("mig", 1), Entry("slot", 1)), "025"),
        ("..[...](....)", (Entry("slot", 1), Entry("mig", 1), Entry("gpu", 1)), "025"),
        # Shared GPUs are filled before the next one is begun.
        ("[...][#..][...]", (TWO_MIG,), "45"),
        ("(....)(###.)(#...)", (TWO_SLOTS,), "79"),
        ("(....)(....)", (TWO_SLOTS,), "01"),
        # Whole GPUs are no instances, and instances no whole GPUs.
        ("....", (TWO_MIG,), "tooFewDevices"),
        ("[....]", (GPU_OF_TWO,), "tooFewDevices"),
        # NVLink reaches GPUs, not parts of them.
        ("[....]", (Entry("mig", 2, "nvlink-all"),), "noSuchIsland"),
        # Two entries of one kind get atoms of their own.
        ("....", (GPU_OF_TWO, GPU_OF_TWO), "0123"),
        ("...#", (GPU_OF_TWO, GPU_OF_TWO), "booked"),
        ("..|....", (GPU_OF_FOUR, GPU_OF_TWO), "012345"),
        ("..|....", (Entry("gpu", 2, "nvlink-all"), Entry("gpu", 4, "nvlink-all")), "012345"),
        ("....|..", (Entry("gpu", 2, "nvlink-all"), Entry("gpu", 3, "nvlink-all")), "01245"),
        ("..|..", (Entry("gpu", 1, "nvlink-all"), Entry("gpu", 2, "nvlink-all")), "023"),
        ("..|..|.", (Entry("gpu", 2, "nvlink-all"), Entry("gpu", 2, "nvlink-all")), "0123"),
        # What the first entry could have anywhere is left where a later one needs it.
        (".. numa:ab", (Entry("gpu", 1), Entry("gpu", 1, "numa")), "01"),
        ("...|.", (Entry("gpu", 1), Entry("gpu", 3, "nvlink-all")), "0123"),
        (".|...", (Entry("gpu", 1, "nvlink-all"), Entry("gpu", 3)), "0123"),
    ],
)
def test_every_entry_is_served_and_no_atom_serves_two(atoms: str, entries: tuple[Entry, ...], gives: str) -> None:
    assert picked(atoms, asked(entries)) == gives


@given(bookable=st.integers(0, 255), count=st.integers(1, 8), topology=topologies)
def test_atoms_are_given_exactly_where_some_choice_of_them_would_do(
    bookable: int, count: int, topology: Topology
) -> None:
    entry = Entry("gpu", count, topology)
    ways = [
        {atom.number for atom in chosen}
        for chosen in combinations([EIGHT[number] for number in atom_numbers(bookable)], count)
        if belongs_together(chosen, entry)
    ]

    mask = pick_atoms(bookable, layout_of(EIGHT), (entry,))

    assert (set(atom_numbers(mask)) in ways) if ways else mask == 0


@given(host=st.sampled_from(HOSTS), shape=st.data(), missing=st.integers(0, 255))
def test_several_entries_are_served_exactly_where_some_choice_serves_them_all(
    host: tuple[Atom, ...], shape: st.DataObject, missing: int
) -> None:
    entries = shape.draw(shapes).entries
    layout = layout_of(host)
    free = set(atom_numbers(layout.mask & ~missing))
    ways = {frozenset(sum(way, ())) for way in choices(node_of(host), free, entries)}

    mask = pick_atoms(layout.mask & ~missing, layout, entries)

    assert (frozenset(atom_numbers(mask)) in ways) if ways else mask == 0


@given(bookable=st.integers(0, 255), count=st.integers(1, 8), topology=topologies)
def test_no_whole_island_is_broken_while_a_broken_one_would_do(bookable: int, count: int, topology: Topology) -> None:
    mask = pick_atoms(bookable, layout_of(EIGHT), (Entry("gpu", count, topology),))
    left = [(island & bookable).bit_count() for island in ISLANDS]
    touched = [(island & bookable).bit_count() for island in ISLANDS if island & mask]

    if topology == "nvlink-all" and mask:
        assert touched == [min(free for free in left if free >= count)]
    if topology == "any" and mask:
        # Whatever is more broken than an island that was touched has nothing left to give.
        worst = max(touched)
        assert all(not island & bookable & ~mask for island in ISLANDS if 0 < (island & bookable).bit_count() < worst)


@given(bookable=st.integers(0, 2**12 - 1), count=st.integers(1, 6), kind=st.sampled_from(["mig", "slot"]))
def test_no_shared_gpu_is_begun_while_a_begun_one_would_do(bookable: int, count: int, kind: str) -> None:
    host = devices("[....][....][....]" if kind == "mig" else "(....)(....)(....)")
    shared = (0x00F, 0x0F0, 0xF00)
    mask = pick_atoms(bookable, layout_of(host), (Entry("mig" if kind == "mig" else "slot", count),))

    if mask:
        worst = max((gpu & bookable).bit_count() for gpu in shared if gpu & mask)
        assert all(not gpu & bookable & ~mask for gpu in shared if (gpu & bookable).bit_count() < worst)
        assert mask.bit_count() == count


@given(
    missing=st.integers(0, 63),
    counts=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    memories=st.lists(st.sampled_from([0, 1, 2]), min_size=3, max_size=3),
)
def test_the_first_entry_has_the_lowest_numbers_that_leave_enough_to_those_after_it(
    missing: int, counts: list[int], memories: list[int]
) -> None:
    host = tuple(Atom(number, "gpu", f"GPU-{number}", "H100", number % 3, 0, gpu=str(number)) for number in range(6))
    entries = tuple(Entry("gpu", count, memory_mib=memory) for count, memory in zip(counts, memories, strict=False))
    layout = layout_of(host)
    ways = sorted(choices(node_of(host), set(atom_numbers(layout.mask & ~missing)), entries))

    mask = pick_atoms(layout.mask & ~missing, layout, entries)

    assert atom_numbers(mask) == (sorted(sum(ways[0], ())) if ways else [])


def test_the_same_atoms_must_be_free_for_the_whole_window() -> None:
    # One atom is free at every instant, but not the same one.
    start_ms, end_ms = asked().window.start_ms, asked().window.end_ms
    middle_ms = (start_ms + end_ms) // 2
    crossed = pool("a1 A ..").with_booking("a1", Booked(start_ms, middle_ms, 0b01, "x"))
    crossed = crossed.with_booking("a1", Booked(middle_ms, end_ms, 0b10, "y"))

    assert pick_atoms(crossed.views["a1"].free(asked().window), crossed.views["a1"].layout, (Entry("gpu", 1),)) == 0
    assert not isinstance(plan(crossed, asked(1)), Plan)
