"""The nearest yes of a refused request: exactly what trying every size, length, start and value finds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core import occupancy
from muster_coordinator.core.model import Booked, Entry, Node, Request
from muster_coordinator.core.placement.nearest import Near, Search
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.time import MS_MAX, Window
from tests.support.any_pool import ROW, gpu_requests, pools
from tests.support.drawings import KEY, RACK, asked, pool, same
from tests.support.drawings import nodes as drawn_nodes
from tests.support.oracle import can_give, domains, size_max

UNTIL_MS = 14
PLACES = {KEY, RACK, ROW}


def plain(request: Request) -> Request:
    """The least that would do."""
    return replace(request, grouping=replace(request.grouping, preferred=()))


def room(nodes: list[Node], request: Request) -> int:
    able = [node for node in nodes if can_give(node, request)]
    return size_max(domains(able, request, request.grouping.required), request)


def fits(nodes: list[Node], request: Request, start_ms: int, end_ms: int) -> bool:
    return room(nodes, replace(request, window=Window(start_ms, end_ms))) >= request.size


def search(nodes: list[Node], request: Request, split_at: int = occupancy.SPLIT_AT) -> Search:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occupancy, "SPLIT_AT", split_at)
        return Search(Snapshot.of("pool", 1, nodes), request)


def window(near: Near | None) -> tuple[int, int] | None:
    return None if near is None else (near.request.window.start_ms, near.request.window.end_ms)


splits = st.sampled_from((1, 3, 1_024))


@given(nodes=pools, request=gpu_requests)
def test_the_largest_gang_is_the_largest_that_any_domain_holds(nodes: list[Node], request: Request) -> None:
    near = search(nodes, request).largest_gang()

    largest = room(nodes, request)
    assert (near.request.size if near else 0) == largest
    if near:
        assert near.request == replace(request, size=largest)
        assert near.milli == 1_000 * request.shape.entries[0].count * largest
        assert tuple(key for key, _ in near.agreed) == request.grouping.required


@given(nodes=pools, request=gpu_requests, most_ms=st.integers(1, 12), split_at=splits)
def test_the_longest_is_the_last_end_at_which_the_gang_still_fits(
    nodes: list[Node], request: Request, most_ms: int, split_at: int
) -> None:
    start_ms = request.window.start_ms
    ends = [end_ms for end_ms in range(start_ms + 1, start_ms + most_ms + 1) if fits(nodes, request, start_ms, end_ms)]

    near = search(nodes, request, split_at).longest(most_ms)

    assert window(near) == ((start_ms, max(ends)) if ends else None)


@given(nodes=pools, request=gpu_requests, split_at=splits)
def test_the_earliest_start_is_the_first_at_which_the_gang_fits_for_as_long(
    nodes: list[Node], request: Request, split_at: int
) -> None:
    asked_for, start_ms, lasts_ms = plain(request), request.window.start_ms, request.window.duration_ms
    if not fits(nodes, asked_for, start_ms, start_ms + lasts_ms):
        later = (at for at in range(start_ms + 1, UNTIL_MS + 1) if fits(nodes, asked_for, at, at + lasts_ms))
        first = next(later, None)

        near = search(nodes, request, split_at).earliest_start(UNTIL_MS)

        assert window(near) == (None if first is None else (first, first + lasts_ms))


@given(nodes=pools, request=gpu_requests)
def test_other_values_are_those_that_hold_the_gang_too_the_roomiest_first(nodes: list[Node], request: Request) -> None:
    required = request.grouping.required
    able = domains([node for node in nodes if can_give(node, request)], request, required)
    holds = {
        tuple(zip(required, values, strict=True)): sum(map(len, parts.values()))
        for values, parts in able.items()
        if size_max({values: parts}, request) >= request.size and values
    }
    taken = min(holds, default=())

    near = search(nodes, request).other_values(taken)

    left = {agreed: -count for agreed, count in holds.items() if agreed != taken}
    assert [one.agreed for one in near] == sorted(left, key=lambda agreed: (left[agreed], agreed))[:4]


@given(nodes=pools, request=gpu_requests)
def test_other_keys_are_told_where_the_gang_would_fit_with_them(nodes: list[Node], request: Request) -> None:
    placed_by = [replace(node, labels={key: node.labels[key] for key in PLACES & node.labels.keys()}) for node in nodes]
    wanted = replace(request, shape=replace(request.shape, selector=()))
    shown = {key for node in placed_by for key in node.labels} - set(request.grouping.required)
    with_key = {key: replace(wanted, grouping=same(key)) for key in sorted(shown)}

    near = search(placed_by, wanted).other_keys()

    told = sorted(one.request.grouping.required for one in near)
    fitting = [(key,) for key, asked_for in with_key.items() if room(placed_by, asked_for) >= request.size]
    assert told == [*([()] if room(placed_by, replace(wanted, grouping=same())) >= request.size else []), *fitting]


def test_a_label_that_says_what_a_node_is_is_no_place() -> None:
    scene = pool("a1 A .... rack=r1 gpu.model=x driver.version=y\na2 B .... rack=r1 gpu.model=x driver.version=y")
    near = Search(scene, asked(4, 2)).other_keys()

    assert [one.agreed for one in near] == [((RACK, "r1"),), ()]


def test_the_rarest_label_that_would_do_is_told_first() -> None:
    scene = pool("a1 A .... rack=r1 row=w1\na2 B .... rack=r1 row=w1\nb1 C .... rack=r2 row=w1")
    near = Search(scene, asked(4, 2)).other_keys()

    assert [one.agreed for one in near] == [((RACK, "r1"),), ((ROW, "w1"),), ()]


def test_a_search_gives_up_rather_than_look_for_ever() -> None:
    # Each node is free for 1 ms at a time, and never both together.
    scene = Snapshot.of(
        "pool",
        1,
        [
            replace(node, booked=tuple(Booked(at, at + 1, 0b1111, f"{at}") for at in range(odd, 800, 2)))
            for odd, node in enumerate(drawn_nodes("a1 A ....\na2 A ...."))
        ],
    )

    assert Search(scene, asked(4, 2, window=Window(0, 1))).earliest_start(2_000) is None


def test_no_window_ends_after_the_calendar() -> None:
    scene = pool("a1 A ....").with_booking("a1", Booked(0, MS_MAX - 1, 15, "rsv"))

    assert Search(scene, asked(4, window=Window(1, 3))).earliest_start(MS_MAX) is None
    assert window(Search(scene, asked(4, window=Window(1, 2))).earliest_start(MS_MAX)) == (MS_MAX - 1, MS_MAX)
    assert window(Search(pool("a1 A ...."), asked(4, window=Window(1, 2))).longest(MS_MAX)) == (1, MS_MAX)


def test_of_two_largest_gangs_the_first_by_name_is_told() -> None:
    near = Search(pool("a1 B ....\na2 A ...."), asked(4, 2)).largest_gang()

    assert near is not None
    assert (near.request.size, near.agreed) == (1, ((KEY, "A"),))


def test_several_entries_are_counted_in_one_unit() -> None:
    """S37: a preview's figure is the sum of what its atoms are."""
    scene = pool("a1 A .[..](....)\na2 A .[..](....)")
    one_of_each = (Entry("gpu", 1), Entry("mig", 1), Entry("slot", 1))
    near = Search(scene, asked(one_of_each, 2)).largest_gang()

    assert near is not None
    assert near.milli == 2 * (1_000 + 500 + 250)
