"""Buckets over the calendar: every bucket says what looking at every booking and every GPU says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import NOBODY, Booked, Node
from muster_coordinator.core.snapshot import FOREVER_MS, Snapshot
from muster_coordinator.core.timeline.buckets import Frame, booked_gpus, free_nodes
from muster_coordinator.core.timeline.rollup import allocatable
from muster_shared.time import Window
from tests.support.any_pool import nodes_of, pools
from tests.support.drawings import KEY, OTHERS, nodes, pool

NOW_MS = 2

frames = st.builds(
    lambda start_ms, lasts_ms, bucket_ms: Frame(Window(start_ms, start_ms + lasts_ms), bucket_ms),
    st.integers(0, 9),
    st.integers(1, 12),
    st.integers(1, 13),
)
overruns = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 15), st.sampled_from((3, FOREVER_MS))), max_size=3)


def with_overruns(pool: list[Node], late: list[tuple[int, int, int]]) -> list[Node]:
    """The same nodes, some of which have atoms that somebody has not let go of."""
    for number, mask, until_ms in late:
        if number < len(pool):
            node = pool[number]
            pool[number] = replace(node, booked=(Booked(0, until_ms, mask, NOBODY), *node.booked))
    return pool


def overlapping(node: Node, bucket: Window) -> list[Booked]:
    """The bookings of a node that overlap a bucket, an overrun being one of the present moment."""
    windows = [
        (Window(NOW_MS, NOW_MS + 1) if one.reservation_id == NOBODY else Window(one.start_ms, one.end_ms), one)
        for one in node.booked
    ]
    return [one for window, one in windows if window.overlaps(bucket)]


def counted(pool: list[Node], bucket: Window) -> int:
    """The same count GPU by GPU."""
    return sum(
        any(one.mask >> atom.number & 1 for one in overlapping(node, bucket))
        for node in pool
        for atom in node.atoms
        if atom.kind == "gpu"
    )


def idle(node: Node, bucket: Window) -> bool:
    """Is a node sound, of whole GPUs alone, and free for a whole bucket?"""
    every = sum(1 << atom.number for atom in node.atoms)
    return (
        bool(every)
        and all(atom.kind == "gpu" for atom in node.atoms)
        and node.intent == "schedulable"
        and node.reachable
        and not node.leased
        and not any(mask & every for mask in node.held.values())
        and not any(one.mask & every for one in overlapping(node, bucket))
    )


@given(pools, overruns, frames)
def test_each_bucket_counts_each_gpu_once_that_any_booking_of_it_takes(
    some: list[Node], late: list[tuple[int, int, int]], frame: Frame
) -> None:
    some = with_overruns(some, late)

    assert booked_gpus(Snapshot.of("pool", 1, some), frame, NOW_MS) == [
        counted(some, bucket) for bucket in frame.buckets()
    ]


@given(st.binary(min_size=12, max_size=12), st.lists(st.tuples(*[st.integers(1, 9)] * 2, st.integers(1, 15))), frames)
def test_a_node_with_many_bookings_in_any_order_is_counted_alike(
    code: bytes, spans: list[tuple[int, int, int]], frame: Frame
) -> None:
    booked = sorted((start, start + lasts, mask) for start, lasts, mask in spans)
    node = replace(nodes_of(code, 1)[0], booked=tuple(Booked(*one, "rsv") for one in booked))

    assert booked_gpus(Snapshot.of("pool", 1, [node]), frame, NOW_MS) == [
        counted([node], bucket) for bucket in frame.buckets()
    ]


@given(pools, overruns, frames)
def test_nodes_are_free_for_a_bucket_that_no_booking_of_them_touches(
    some: list[Node], late: list[tuple[int, int, int]], frame: Frame
) -> None:
    some = sorted(with_overruns(some, late), key=lambda node: node.id)
    values = [node.labels.get(KEY) for node in some]

    assert free_nodes(Snapshot.of("pool", 1, some), frame, values, NOW_MS) == {
        value: [sum(idle(node, bucket) for node in some if node.labels.get(KEY) == value) for bucket in frame.buckets()]
        for value in sorted({value for value in values if value is not None})
    }


@pytest.mark.parametrize(
    ("booked", "touched"),
    [
        ((0, 5), "."),  # before
        ((5, 10), "."),  # meets
        ((5, 15), "#"),  # overlaps
        ((5, 20), "#"),  # is finished by
        ((5, 25), "#"),  # contains
        ((10, 15), "#"),  # starts
        ((10, 20), "#"),  # equals
        ((10, 25), "#"),  # is started by
        ((12, 18), "#"),  # during
        ((15, 20), "#"),  # finishes
        ((15, 25), "#"),  # is overlapped by
        ((20, 25), "."),  # is met by
        ((25, 30), "."),  # after
    ],
)
def test_r42_a_booking_counts_in_a_bucket_by_every_relation_of_two_half_open_intervals(
    booked: tuple[int, int], touched: str
) -> None:
    start_ms, end_ms = booked
    (node,) = nodes("a1 A .")
    snapshot = Snapshot.of("pool", 1, [replace(node, booked=(Booked(start_ms, end_ms, 1, OTHERS),))])

    counts = booked_gpus(snapshot, Frame(Window(0, 30), 10), 0)

    assert ".#"[counts[1]] == touched


def test_the_last_bucket_ends_with_the_window_and_takes_nothing_from_beyond() -> None:
    frame = Frame(Window(0, 25), 10)
    (node,) = nodes("a1 A .")
    snapshot = Snapshot.of("pool", 1, [replace(node, booked=(Booked(25, 30, 1, OTHERS),))])

    assert frame.buckets() == [Window(0, 10), Window(10, 20), Window(20, 25)]
    assert booked_gpus(snapshot, frame, 0) == [0, 0, 0]


def test_instances_and_shares_are_no_whole_gpus() -> None:
    snapshot = pool("a1 A .#[##](##)")

    assert booked_gpus(snapshot, Frame(Window(1_000, 2_000), 1_000), 0) == [1]
    assert allocatable(snapshot) == 2


def test_only_open_sound_nodes_have_gpus_to_give() -> None:
    assert allocatable(pool("a1 A ..x.\na2 A .... cordoned\na3 A .... silent\na4 A .... leased\na5 A ##..")) == 7


def test_an_overrun_adds_nothing_to_the_booking_that_it_is_in_the_way_of() -> None:
    (node,) = nodes("a1 A .")
    late = replace(node, booked=(Booked(0, FOREVER_MS, 1, NOBODY), Booked(1, 50, 1, OTHERS)))

    assert booked_gpus(Snapshot.of("pool", 1, [late]), Frame(Window(0, 60), 10), 25) == [1, 1, 1, 1, 1, 0]


def test_a_node_without_any_device_is_no_free_node() -> None:
    (node,) = nodes("a1 A .")

    assert free_nodes(Snapshot.of("pool", 1, [replace(node, atoms=())]), Frame(Window(0, 10), 10), ["A"], 0) == {
        "A": [0]
    }
