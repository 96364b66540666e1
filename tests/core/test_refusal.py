"""Every node of a refused pool is counted under the one thing that keeps it away, and dated where that has a date."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Booked, Node, Request
from muster_coordinator.core.placement.pipeline import plan
from muster_coordinator.core.placement.reasons import Blocker, Refusal
from muster_coordinator.core.snapshot import FOREVER_MS, Snapshot
from muster_shared.time import Window
from tests.support.any_pool import gpu_requests, pools, requests
from tests.support.drawings import asked, drawn, nodes, pool
from tests.support.oracle import (
    GROUPING_VALUES,
    booked_atoms,
    could_ever_give,
    domains,
    free_atoms,
    held_atoms,
    is_selected,
    serves,
    size_max,
)

TOO_LATE_MS = 25


def loosened(request: Request) -> Request:
    """The same devices, wherever on the node they are."""
    entries = tuple(replace(entry, topology="any") for entry in request.shape.entries)
    return replace(request, shape=replace(request.shape, entries=entries))


def closed_by(node: Node, request: Request) -> str | None:
    """What keeps a node away whatever is booked, in the order in which people ask."""
    grouping = request.grouping
    keys = (*grouping.required, *([grouping.segment_key] if grouping.segment_key else []))
    if not is_selected(node, request.shape):
        return "selectorMismatch"
    if not {node.labels.get(key, "") for key in keys} <= GROUPING_VALUES:
        return "labelMissing"
    if not could_ever_give(node, request):
        return "noSuchIsland" if could_ever_give(node, loosened(request)) else "tooFewDevices"
    if node.leased:
        return "leased"
    if node.intent != "schedulable":
        return node.intent
    return None if node.reachable else "unreachable"


def reason_of(node: Node, request: Request, excluded: frozenset[str]) -> str:
    """The one thing that keeps a node away, or that it has too few peers."""
    if closed := closed_by(node, request):
        return closed
    every = {atom.number for atom in node.atoms}
    entries = request.shape.entries
    free = free_atoms(node, request.window)
    if serves(node, free, entries):
        return "excluded" if node.id in excluded else "tooFewPeers"
    if serves(node, every - booked_atoms(node, request.window), entries):
        return "held"
    if not serves(node, every - held_atoms(node), entries):
        return "held"
    return "islandBooked" if serves(node, free, loosened(request).shape.entries) else "booked"


def free_again_ms(node: Node, request: Request) -> int | None:
    """The first later start at which the node gives its part for as long, looked for instant by instant."""
    window = request.window
    for start_ms in range(window.start_ms + 1, TOO_LATE_MS):
        if serves(node, free_atoms(node, Window(start_ms, start_ms + window.duration_ms)), request.shape.entries):
            return start_ms
    return None


def check_refusal(pool_nodes: list[Node], request: Request, excluded: frozenset[str]) -> None:
    answer = plan(Snapshot.of("pool", 1, pool_nodes), request, excluded=excluded)
    if not isinstance(answer, Refusal):
        return
    codes = {node.id: reason_of(node, request, excluded) for node in pool_nodes}
    counts = Counter(codes.values())
    dates = [free_again_ms(node, request) for node in pool_nodes if codes[node.id] == "booked"]
    until_ms = min((date for date in dates if date is not None), default=None)
    ever = domains([node for node in pool_nodes if could_ever_give(node, request)], request, request.grouping.required)

    assert [(one.code, one.nodes) for one in answer.blockers] == sorted(
        counts.items(), key=lambda item: (-item[1], item[0])
    )
    assert [one.until_ms for one in answer.blockers if one.code == "booked"] == ([until_ms] if dates else [])
    assert all(one.until_ms is None for one in answer.blockers if one.code != "booked")
    assert answer.never == (size_max(ever, request) < request.size)


excluded_nodes = st.frozensets(st.sampled_from(["n0", "n1", "n2"]), max_size=2)


@given(pool_nodes=pools, request=requests, excluded=excluded_nodes)
def test_every_node_is_counted_under_the_one_thing_that_keeps_it_away(
    pool_nodes: list[Node], request: Request, excluded: frozenset[str]
) -> None:
    check_refusal(pool_nodes, request, excluded)


@given(pool_nodes=pools, request=gpu_requests, window=st.integers(1, 4))
def test_what_is_booked_is_dated_to_the_instant(pool_nodes: list[Node], request: Request, window: int) -> None:
    open_nodes = [replace(node, intent="schedulable", leased=False, silent_since_ms=None) for node in pool_nodes]
    more = replace(request, size=3 * request.size, window=Window(2, 2 + window))

    check_refusal(open_nodes, more, frozenset())


def test_nodes_outside_the_values_that_a_repair_keeps_to_are_left_out_and_said_to_be() -> None:
    answer = plan(pool("a1 A ....\nb1 B ....\nb2 B ####"), asked(4, 2), within=(("fabric.domain", "A"),))

    assert isinstance(answer, Refusal)
    assert {one.code: one.nodes for one in answer.blockers} == {"tooFewPeers": 1, "excluded": 1, "booked": 1}
    assert answer.size_max == 1


def test_a_hold_that_nobody_can_date_is_said_without_a_date() -> None:
    overrun = replace(nodes("a1 A ....")[0], booked=(Booked(0, FOREVER_MS, 0b1111, "rsv"),))
    later = [replace(node, booked=(Booked(0, 5_000, 0b1111, "rsv"),)) for node in nodes("a0 A ....\na2 A ....")]

    alone, beside = (plan(Snapshot.of("pool", 1, some), asked(4)) for some in ([overrun], [overrun, *later]))

    assert isinstance(alone, Refusal)
    assert alone.blockers == (Blocker("booked", 1, None),)
    assert drawn(alone).endswith("1 node booked")
    assert isinstance(beside, Refusal)
    assert beside.blockers == (Blocker("booked", 3, 5_000),)


def test_of_a_large_pool_the_groups_that_come_closest_to_a_gang_are_dated() -> None:
    booked_until = {f"z{at:02}": 9_000 for at in range(40)} | {"b00": 5_000}
    drawing = "\n".join(["zx Z ....", *(f"{name} {name[0].upper()} ...." for name in booked_until)])
    scene = pool(drawing)
    for name, end_ms in booked_until.items():
        scene = scene.with_booking(name, Booked(0, end_ms, 0b1111, "rsv"))

    answer = plan(scene, asked(4, 2))
    fewer = plan(scene.with_nodes(2, [replace(scene.views["z00"].node, booked=(), leased=True)]), asked(4, 2))

    assert isinstance(answer, Refusal)
    assert isinstance(fewer, Refusal)
    assert [one.until_ms for one in answer.blockers if one.code == "booked"] == [9_000]
    assert [one.until_ms for one in fewer.blockers if one.code == "booked"] == [5_000]
