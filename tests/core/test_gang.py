"""Which gang is best: rank by rank, then points, then the group's name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.placement.atoms import Picked
from muster_coordinator.core.placement.gang import Fit, Group, rank_gangs, tightest
from muster_coordinator.core.placement.pipeline import Plan, plan
from tests.support.drawings import asked, drawn, pool


def chosen(drawing: str, size: int = 2, count: int = 4, top_n: int = 1, seed: int = 0) -> str:
    return drawn(plan(pool(drawing), asked(count, size), top_n=top_n, seed=seed))


def fits(*points: int, left: int = 0, prefix: str = "n", sound: bool = True) -> tuple[Fit, ...]:
    return tuple(Fit(f"{prefix}{i}", Picked(f"{prefix}{i}", 1, left), p, sound) for i, p in enumerate(points))


def test_the_tightest_group_goes_first() -> None:
    three_then_two = "a1 A ....\na2 A ....\na3 A ....\nb1 B ....\nb2 B ....\nb3 B ###."

    assert chosen(three_then_two) == "b1:0123 b2:0123"


def test_a_group_too_small_is_no_candidate_however_tight() -> None:
    assert chosen("a1 A ....\nb1 B ....\nb2 B ....\nb3 B ....") == "b1:0123 b2:0123"


def test_among_equally_tight_groups_a_broken_one_goes_before_a_whole_one() -> None:
    whole_a_broken_b = "a1 A ....\na2 A ....\na3 A ....\nb1 B ....\nb2 B ....\nb3 B ....\nb4 B ####"

    assert chosen(whole_a_broken_b) == "b1:0123 b2:0123"


def test_a_whole_group_that_is_taken_whole_is_not_broken() -> None:
    assert chosen("a1 A ....\na2 A ....\nb1 B ....\nb2 B ....\nb3 B ####") == "a1:0123 a2:0123"


def test_a_spare_without_holds_is_worth_more_than_points() -> None:
    # Equally tight, both broken by b4 and a4; only B would keep a spare that a repair can trust.
    trusted_in_b = """
        a1 A ....
        a2 A ....
        a3 A ....x
        a4 A ####
        b1 B .....
        b2 B .....
        b3 B .....
        b4 B #####"""

    assert chosen(trusted_in_b) == "b1:0123 b2:0123"


def test_members_are_the_nodes_with_the_least_left_over() -> None:
    assert chosen("a1 A ........\na2 A ....####\na3 A ..######\na4 A ...#####", count=2) == "a3:01 a4:01"


def test_members_stand_in_the_order_of_their_names() -> None:
    assert chosen("a2 A ....\na10 A ....\na1 A ....", size=3) == "a1:0123 a10:0123 a2:0123"


def test_equal_ranks_go_by_points_then_by_name() -> None:
    groups = {"c": Group(fits(5, 5)), "b": Group(fits(5, 5)), "a": Group(fits(5, 4))}

    assert [candidate.group for candidate in rank_gangs(groups, 2)] == ["b", "c", "a"]


def test_the_best_of_a_group_go_by_left_over_then_points_then_id() -> None:
    group = Group((*fits(9, 9, left=1, prefix="x"), *fits(1, 3, 3, prefix="y")))

    assert [fit.name for fit in rank_gangs({"a": group}, 3)[0].fits] == ["y0", "y1", "y2"]
    assert [fit.name for fit in rank_gangs({"a": group}, 2)[0].fits] == ["y1", "y2"]
    assert [fit.name for fit in rank_gangs({"a": group}, 1)[0].fits] == ["y1"]


def test_a_node_in_trouble_is_taken_last_however_tightly_it_fits() -> None:
    group = Group((*fits(9, left=0, prefix="held", sound=False), *fits(1, left=3, prefix="sound")))

    assert [fit.name for fit in rank_gangs({"a": group}, 1)[0].fits] == ["sound0"]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Group(fits(0, 0)), Group(fits(9, 9, 9))),  # least left over
        (Group(fits(0, 0, 0)), Group(fits(9, 9, 9), breaks_whole=True)),  # breaks no whole group
        (Group(fits(0, 0, 0)), Group((*fits(9, 9), *fits(1, prefix="m", sound=False)))),  # leaves a sound spare
        (
            Group((*fits(1, 1), *fits(0, prefix="m", sound=False))),
            Group(fits(9, 9, 9), breaks_whole=True),
        ),  # in this order
        (Group(fits(0, 0, 0), breaks_whole=True), Group(fits(9, 9, 9, 9))),
        (Group(fits(9, 9, 9)), Group(fits(9, 8, 8))),  # points
    ],
)
def test_a_better_rank_wins_whatever_the_names(better: Group, worse: Group) -> None:
    assert rank_gangs({"z": better, "a": worse}, 2)[0].group == "z"
    assert rank_gangs({"a": better, "z": worse}, 2)[0].group == "a"


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(0, 6)), st.integers(1, 4))
def test_the_tightest_groups_are_those_with_the_fewest_nodes_that_hold_the_gang(
    sizes: dict[str, int], size: int
) -> None:
    enough = sorted(nodes for nodes in sizes.values() if nodes >= size)
    fitting = {group: [Picked(f"{group}{i}", 1, 0) for i in range(nodes)] for group, nodes in sizes.items()}

    assert set(tightest(fitting, size)) == {group for group, nodes in sizes.items() if nodes in enough[:1]}


THREE_EQUAL_ONE_WIDER = (
    "\n".join(f"{group}{i} {group.upper()} ...." for group in "abcd" for i in range(2)) + "\nd3 D ...."
)


def test_chance_is_a_function_of_the_seed_and_reaches_every_equal() -> None:
    twice = [[chosen(THREE_EQUAL_ONE_WIDER, top_n=4, seed=seed) for seed in range(9)] for _ in range(2)]

    assert twice[0] == twice[1]
    assert set(twice[0]) == {f"{group}0:0123 {group}1:0123" for group in "abc"}


def test_chance_never_reaches_past_the_best_n() -> None:
    drawn_groups = {chosen(THREE_EQUAL_ONE_WIDER, top_n=2, seed=seed)[0] for seed in range(9)}

    assert drawn_groups == {"a", "b"}
    assert {chosen(THREE_EQUAL_ONE_WIDER, seed=seed)[0] for seed in range(9)} == {"a"}


def test_chance_never_reaches_a_worse_rank() -> None:
    # All three are equally tight, but A would break a whole group.
    scene = (
        "\n".join(f"{group}{i} {group.upper()} ...." for group in "abc" for i in range(3)) + "\nb9 B ####\nc9 C ####"
    )

    assert {chosen(scene, top_n=3, seed=seed)[0] for seed in range(9)} == {"b", "c"}


@given(seed=st.integers(), top_n=st.integers(1, 9))
def test_the_seed_is_recorded_with_the_decision(seed: int, top_n: int) -> None:
    answer = plan(pool(THREE_EQUAL_ONE_WIDER), asked(4, 2), seed=seed, top_n=top_n)

    assert isinstance(answer, Plan)
    assert answer.seed == seed
