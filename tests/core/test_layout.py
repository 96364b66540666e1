"""What nodes with the same devices share, and the one count of how much GPU atoms are."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.layout import layout_of
from muster_coordinator.core.model import Atom, Entry, Shape
from muster_shared.devices import DeviceClass, atom_numbers
from tests.support.any_pool import HOSTS, shapes
from tests.support.drawings import MEMORY_MIB, devices
from tests.support.oracle import suits

hosts = st.sampled_from(HOSTS)
SEVEN_AND_TWO = devices("[.......](..).")


@pytest.mark.parametrize(
    ("entry", "numbers"),
    [
        (Entry("gpu", 1), [9]),
        (Entry("mig", 1), [0, 1, 2, 3, 4, 5, 6]),
        (Entry("slot", 1), [7, 8]),
        (Entry("gpu", 1, model="h100", memory_mib=MEMORY_MIB), [9]),
        (Entry("gpu", 1, model="H200"), []),
        (Entry("gpu", 1, memory_mib=MEMORY_MIB + 1), []),
        (Entry("mig", 1, profile="1g.10gb"), [0, 1, 2, 3, 4, 5, 6]),
        (Entry("mig", 1, profile="1g"), []),
        (Entry("gpu", 1, profile="1g.10gb"), []),
        (Entry("slot", 1, memory_mib=MEMORY_MIB // 2), [7, 8]),
    ],
)
def test_devices_suit_by_kind_model_memory_and_profile(entry: Entry, numbers: list[int]) -> None:
    layout = layout_of(SEVEN_AND_TWO)

    assert atom_numbers(layout.suitable(entry)) == numbers
    assert layout.suitable(entry) == layout.suitable(entry)


@given(host=hosts, shape=shapes)
def test_a_layout_answers_what_each_atom_answers(host: tuple[Atom, ...], shape: Shape) -> None:
    layout = layout_of(host)

    assert [one.number for one in layout.atoms] == sorted(one.number for one in host)
    for entry in shape.entries:
        assert atom_numbers(layout.suitable(entry)) == [one.number for one in host if suits(one, entry)]


@pytest.mark.parametrize(
    ("numbers", "milli", "gpus"),
    [
        (range(7), 7 * 143, 1),  # the seventh of a GPU, rounded up: whoever has all of them is charged no less than 1
        ([0], 143, 1),
        ([7], 500, 1),
        ([7, 8], 1_000, 1),
        ([9], 1_000, 1),
        ([0, 7, 9], 1_643, 3),
        ([], 0, 0),
    ],
)
def test_one_count_says_how_much_gpu_any_atoms_are(numbers: list[int], milli: int, gpus: int) -> None:
    """S37: quota, budgets, preemption and preview all ask this."""
    layout = layout_of(SEVEN_AND_TWO)
    mask = sum(1 << number for number in numbers)

    assert (layout.milli(mask), layout.whole_gpus(mask)) == (milli, gpus)


@given(host=hosts, one=st.integers(0, 255), other=st.integers(0, 255))
def test_how_much_gpu_two_parts_are_is_the_sum_of_theirs(host: tuple[Atom, ...], one: int, other: int) -> None:
    """S37: no capacity is counted twice, and none as zero."""
    layout = layout_of(host)
    first, second = one & layout.mask, other & layout.mask & ~one

    assert layout.milli(first | second) == layout.milli(first) + layout.milli(second)
    assert (layout.milli(first) > 0) == (first > 0)
    assert layout.whole_gpus(first) <= first.bit_count()


def test_hosts_that_differ_in_uuids_alone_share_one_layout() -> None:
    host = devices("..|[..](..)", "aabb")
    other = tuple(replace(one, device=f"x{one.device}", gpu=f"x{one.gpu}") for one in host)

    assert layout_of(host) is layout_of(other) is layout_of(host[::-1])


@pytest.mark.parametrize(
    "change",
    [
        {"number": 9},
        {"kind": "slot"},
        {"model": "H200"},
        {"memory_mib": 1},
        {"island": 3},
        {"numa": 3},
        {"profile": "2g.20gb"},
        {"milli": 1},
        {"gpu": "GPU-0"},
    ],
)
def test_hosts_that_differ_in_anything_else_do_not(change: dict[str, object]) -> None:
    host = devices("..|[..]", "aab")
    other = (*host[:3], replace(host[3], **change))  # type: ignore[arg-type]  # columns of an atom, by name

    assert layout_of(host) is not layout_of(other)


@pytest.mark.parametrize(
    ("kind", "bundles"),
    [("gpu", ["3", "45", "012"]), ("mig", ["0", "1", "2", "3", "4", "5", "67", "89"])],
)
def test_what_stays_whole_is_listed_smallest_first(kind: DeviceClass, bundles: list[str]) -> None:
    layout = layout_of(devices("...|.|..[..](..)"))

    assert ["".join(map(str, atom_numbers(mask))) for mask in layout.packed_by(kind)] == bundles


def test_islands_hold_gpus_and_numa_nodes_hold_whatever_is_on_them() -> None:
    layout = layout_of(devices("..[..]|.", "abab"))

    assert [atom_numbers(mask) for mask in layout.islands] == [[4], [0, 1]]
    assert [atom_numbers(mask) for mask in layout.numa_nodes] == [[0, 2, 3], [1, 4]][::-1]
    assert layout_of(devices("..")).numa_nodes == ()
