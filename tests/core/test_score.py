"""Which of two nodes is the better one, and that the pool's weights decide what counts."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Booked, Grouping, Node, Policy
from muster_coordinator.core.placement.pipeline import plan
from muster_coordinator.core.placement.score import FAULT_MEMORY_MS, SCORE_MAX, Gaps, Offer, score, weighed
from muster_coordinator.core.snapshot import NodeView
from muster_shared.time import Window
from tests.support.drawings import KEY, RACK, WINDOW, asked, drawn, nodes, pool

SCORES = ("packing", "soundness", "no_recent_fault", "fabric_kept", "snugness")
NONE = {f"score_{name}": 0 for name in SCORES}
HOUR_MS = 3_600_000


def only(name: str, weight: int = 1) -> Policy:
    return Policy(**{**NONE, f"score_{name}": weight})


def points(
    node: Node, policy: Policy, left: int = 6, gaps: Gaps = (None, None), grouping: Grouping | None = None
) -> int:
    request = asked(2, grouping=grouping)
    return score(NodeView(node), request, Offer(0b0011, left, gaps), weighed(policy))


def one(line: str) -> Node:
    return nodes(line)[0]


def test_fewer_atoms_left_over_are_better() -> None:
    packed = [points(one("a1 A ........"), only("packing"), left) for left in (0, 1, 4, 6, 8)]

    assert packed == [1_000, 875, 500, 250, 0]


def test_a_node_without_a_hold_is_better_than_one_with() -> None:
    assert points(one("a1 A ........"), only("soundness")) == SCORE_MAX
    assert points(one("a1 A .......x"), only("soundness")) == 0


@pytest.mark.parametrize(
    ("before_ms", "good"),
    [(0, 0), (FAULT_MEMORY_MS // 2, 500), (FAULT_MEMORY_MS, 1_000), (9 * FAULT_MEMORY_MS, 1_000), (-1, 0)],
)
def test_a_fault_speaks_against_a_node_less_the_longer_it_is_past_when_the_window_begins(
    before_ms: int, good: int
) -> None:
    window = Window(10 * FAULT_MEMORY_MS, 11 * FAULT_MEMORY_MS)
    node = replace(one("a1 A ...."), fault_ms=window.start_ms - before_ms)

    assert score(NodeView(node), asked(2, window=window), Offer(3, 2), weighed(only("no_recent_fault"))) == good


def test_a_node_that_never_had_a_fault_is_as_good_as_can_be() -> None:
    assert points(one("a1 A ...."), only("no_recent_fault")) == SCORE_MAX


@pytest.mark.parametrize(
    ("grouping", "left_alone"),
    [
        (Grouping(), True),
        (Grouping((RACK,)), False),
        (Grouping((), (KEY,)), False),
        (Grouping((), (), RACK, 1), False),
    ],
)
def test_work_that_needs_no_fabric_leaves_fabrics_to_gangs(grouping: Grouping, left_alone: bool) -> None:  # noqa: FBT001 - a column of the table
    inside, outside = (points(one(line), only("fabric_kept"), grouping=grouping) for line in ("n A ....", "n - ...."))

    assert (inside, outside) == (0 if left_alone else SCORE_MAX, SCORE_MAX)


@pytest.mark.parametrize(
    ("gaps", "snug"),
    [
        ((None, None), 0),
        ((0, None), 500),
        ((None, 0), 500),
        ((0, 0), 1_000),
        ((1_000, None), 250),  # as long as the window itself
        ((1_000, 1_000), 500),
        ((3_000, 0), 625),
    ],
)
def test_the_gap_that_a_window_fills_best_is_better(gaps: Gaps, snug: int) -> None:
    assert points(one("a1 A ........"), only("snugness"), gaps=gaps) == snug


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_of_two_gaps_the_shorter_is_never_worse(first_ms: int, second_ms: int) -> None:
    short, long = sorted((first_ms, second_ms))
    snug = [points(one("a1 A ..."), only("snugness"), gaps=(gap_ms, None)) for gap_ms in (short, long)]

    assert SCORE_MAX // 2 >= snug[0] >= snug[1] >= 0


@pytest.mark.parametrize(
    ("booked", "snug"),
    [
        ((), False),
        ((Booked(0, WINDOW.start_ms, 0b1111, "before"),), True),
        ((Booked(WINDOW.end_ms, 9_000, 0b0001, "after"),), True),
        ((Booked(0, WINDOW.start_ms, 0b1000, "an atom that is not given"),), False),
    ],
)
def test_a_window_that_touches_its_neighbours_on_the_same_atoms_is_better(
    booked: tuple[Booked, ...],
    snug: bool,  # noqa: FBT001 - a column of the table
) -> None:
    scene = pool("a1 A ....\na2 A ....")
    for booking in booked:
        scene = scene.with_booking("a2", booking)

    assert drawn(plan(scene, asked(2))) == ("a2:01" if snug else "a1:01")


def test_a_snug_gap_goes_before_a_roomy_one() -> None:
    scene = pool("a1 A ....\na2 A ....").with_booking("a1", Booked(4 * HOUR_MS, 5 * HOUR_MS, 15, "far"))
    scene = scene.with_booking("a2", Booked(3 * HOUR_MS, 5 * HOUR_MS, 15, "near"))
    request = asked(2, window=Window(HOUR_MS, 2 * HOUR_MS))

    assert drawn(plan(scene, request)) == "a2:01"
    assert drawn(plan(scene, request, Policy(score_snugness=0))) == "a1:01"


@pytest.mark.parametrize(
    ("name", "better", "worse"),
    [
        ("no_recent_fault", "a2 A ....", "a1 A .... "),
        ("fabric_kept", "a2 - ....", "a1 A ...."),
    ],
)
def test_a_criterion_decides_where_it_has_a_weight_and_not_where_it_has_none(
    name: str, better: str, worse: str
) -> None:
    faulty = replace(one(worse), fault_ms=1 if name == "no_recent_fault" else 0)
    scene = pool(better).with_nodes(2, [faulty])
    request = asked(2, key=None)

    assert drawn(plan(scene, request)) == "a2:01"
    assert drawn(plan(scene, request, only(name))) == "a2:01"
    assert drawn(plan(scene, request, Policy(**NONE))) == "a1:01"


def test_what_weighs_nothing_is_not_asked() -> None:
    assert [len(weighed(policy)) for policy in (Policy(), Policy(**NONE), Policy(score_packing=0))] == [5, 0, 4]
    assert [weight for _, weight in weighed(Policy(score_packing=7))] == [7, 18, 8, 4, 1]


@given(weights=st.lists(st.integers(0, 9), min_size=5, max_size=5), left=st.integers(0, 8), gap_ms=st.integers(0, 9))
def test_points_are_the_sum_of_what_each_criterion_says_times_its_weight(
    weights: list[int], left: int, gap_ms: int
) -> None:
    node = replace(one("a1 A .......x"), fault_ms=500)
    policy = Policy(**{f"score_{name}": weight for name, weight in zip(SCORES, weights, strict=True)})
    each = [points(node, only(name), left, (gap_ms, None)) for name in SCORES]

    assert points(node, policy, left, (gap_ms, None)) == sum(
        weight * said for weight, said in zip(weights, each, strict=True)
    )


def test_every_scorer_stays_between_nothing_and_its_most() -> None:
    scenes = [one(line) for line in ("a1 A ........", "a1 A .......x", "a1 A .#######", "a1 - ....")]
    said = {
        points(replace(node, fault_ms=fault_ms), only(name), left, gaps)
        for node in scenes
        for left in range(len(node.atoms) + 1)
        for fault_ms in (0, 1, 10**14)
        for gaps in ((None, None), (0, 0), (1, None))
        for name in SCORES
    }

    assert (min(said), max(said)) == (0, SCORE_MAX)


@pytest.mark.parametrize("kind", ["rank_", "score_"])
def test_by_default_every_weight_is_less_than_the_one_before_it(kind: str) -> None:
    weights = [getattr(Policy(), one.name) for one in fields(Policy) if one.name.startswith(kind)]

    assert weights == sorted(set(weights), reverse=True)


def test_by_default_no_sum_of_lesser_scores_outweighs_a_greater_one() -> None:
    # One atom of eight is worth 125 points of the first scorer; a hold outweighs the calendar's neatness.
    weights = [weight for _, weight in weighed(Policy())]

    assert all(weight > sum(weights[at + 1 :]) for at, weight in enumerate(weights))
