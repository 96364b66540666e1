"""Which gang is best: rank by rank, then points, then the group's name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Booked, Policy
from muster_coordinator.core.placement.gang import Fit, Share, rank_gangs, tightest_alone
from muster_coordinator.core.placement.pipeline import Plan, plan
from tests.support.drawings import asked, drawn, pool

DEFAULTS = Policy()
Gang = tuple[int, list[Share]]


def chosen(drawing: str, size: int = 2, count: int = 4, top_n: int = 1, seed: int = 0) -> str:
    return drawn(plan(pool(drawing), asked(count, size), Policy(top_n=top_n), seed=seed))


def fits(*points: int, left: int = 0, prefix: str = "n", sound: bool = True, shreds: int = 0) -> tuple[Fit, ...]:
    return tuple(Fit(f"{prefix}{i}", 1, left, p, sound, shreds) for i, p in enumerate(points))


def gang(members: tuple[Fit, ...], size: int = 2, *, breaks_whole: bool = False) -> Gang:
    return len(members) - size, [Share(("g",), members, size, breaks_whole)]


def best(members: tuple[Fit, ...], size: int) -> list[str]:
    return [fit.node_id for _, fit in rank_gangs({("a",): gang(members, size)}, DEFAULTS)[0].fits]


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


def test_a_gap_too_short_for_anybody_is_worth_more_than_a_spare() -> None:
    # A would leave 900 ms idle before what comes next on a1; B would touch it, and its spare is on hold.
    scene = pool("a1 A ....\na2 A ....\na3 A ....\na4 A ####\nb1 B ....\nb2 B ....\nb3 B ....x\nb4 B ####")
    for node_id, start_ms in (("a1", 2_900), ("a2", 2_900), ("a3", 2_900), ("b1", 2_000)):
        scene = scene.with_booking(node_id, Booked(start_ms, 9_000, 0b1111, "next"))

    def first(usable_gap_ms: int) -> str:
        return drawn(plan(scene, asked(4, 2), Policy(usable_gap_ms=usable_gap_ms)))

    assert first(901) == "b1:0123 b2:0123"
    assert first(900) == "a1:0123 a2:0123"  # as long as that is of use


def test_a_whole_group_is_broken_where_a_gap_or_a_spare_weighs_more() -> None:
    # A is whole. B is not, would leave useless gaps, and its other node is on hold.
    scene = pool("a1 A ....\na2 A ....\nb1 B ....\nb2 B ....x\nb3 B ####")
    for node_id in ("b1", "b2"):
        scene = scene.with_booking(node_id, Booked(2_001, 9_000, 0b1111, "next"))

    def first(whole: int, gaps: int, spare: int) -> str:
        weights = Policy(rank_tightest=9, rank_whole_domain=whole, rank_usable_gaps=gaps, rank_spare=spare)
        return drawn(plan(scene, asked(4, 1), weights))[:2]

    assert [first(3, 2, 1), first(3, 1, 2), first(3, 0, 0)] == ["b1", "b1", "b1"]
    assert [first(2, 3, 1), first(2, 1, 3), first(0, 1, 0)] == ["a1", "a1", "a1"]


def test_members_are_the_nodes_with_the_least_left_over() -> None:
    assert chosen("a1 A ........\na2 A ....####\na3 A ..######\na4 A ...#####", count=2) == "a3:01 a4:01"


def test_members_stand_in_the_order_of_their_names_read_as_people_do() -> None:
    assert chosen("a2 A ....\na10 A ....\na1 A ....", size=3) == "a1:0123 a2:0123 a10:0123"
    assert (
        chosen("r10n1 A ....\nr2n10 A ....\nr2n9 A ....\nr2 A ....", size=4)
        == "r2:0123 r2n9:0123 r2n10:0123 r10n1:0123"
    )


def test_equal_ranks_go_by_points_then_by_name() -> None:
    groups: dict[tuple[str, ...], Gang] = {("c",): gang(fits(5, 5)), ("b",): gang(fits(5, 5)), ("a",): gang(fits(5, 4))}

    assert [candidate.domain for candidate in rank_gangs(groups, DEFAULTS)] == [("b",), ("c",), ("a",)]


def test_the_best_of_a_group_go_by_left_over_then_points_then_id() -> None:
    members = (*fits(9, 9, left=1, prefix="x"), *fits(1, 3, 3, prefix="y"))

    assert best(members, 3) == ["y1", "y2", "y0"]
    assert best(members[::-1], 2) == ["y1", "y2"]
    assert best(members, 1) == ["y1"]
    assert best(members, 5) == ["y1", "y2", "y0", "x0", "x1"]


def test_a_node_in_trouble_is_taken_last_however_tightly_it_fits() -> None:
    members = (*fits(9, left=0, prefix="held", sound=False), *fits(1, left=3, prefix="sound"))

    assert best(members, 1) == ["sound0"]


BETTER_AND_WORSE = [
    (gang(fits(0, 0)), gang(fits(9, 9, 9))),  # least left over
    (gang(fits(0, 0, 0)), gang(fits(9, 9, 9), breaks_whole=True)),  # breaks no whole group
    (gang(fits(0, 0, 0)), gang(fits(9, 9, 9, shreds=1))),  # leaves no useless gap
    (gang((*fits(0, 0, shreds=0), *fits(0, left=1, shreds=5))), gang(fits(9, 9, 9, shreds=1))),  # by its own members
    (gang(fits(0, 0, 0)), gang((*fits(9, 9), *fits(1, prefix="m", sound=False)))),  # leaves a sound spare
    (gang(fits(9, 9, 9)), gang(fits(9, 8, 8))),  # points
    # In this order.
    (gang(fits(0, 0, 0), breaks_whole=True), gang(fits(9, 9, 9, 9))),
    (gang(fits(0, 0, 0, shreds=1)), gang(fits(9, 9, 9), breaks_whole=True)),
    (gang((*fits(1, 1), *fits(0, prefix="m", sound=False))), gang(fits(9, 9, 9, shreds=1))),
]


@pytest.mark.parametrize(("better", "worse"), BETTER_AND_WORSE)
def test_a_better_rank_wins_whatever_the_names(better: Gang, worse: Gang) -> None:
    assert rank_gangs({("z",): better, ("a",): worse}, DEFAULTS)[0].domain == ("z",)
    assert rank_gangs({("a",): worse, ("z",): better}, DEFAULTS)[0].domain == ("z",)


def ranks(policy: Policy) -> list[tuple[int, ...]]:
    """The rank of a gang of two with 1 node left over, a whole group broken, 3 useless gaps a member, no spare."""
    members = (*fits(0, 0, shreds=3), *fits(0, prefix="x", sound=False))
    return [one.rank for one in rank_gangs({("a",): gang(members, breaks_whole=True)}, policy)]


@pytest.mark.parametrize(
    ("weights", "rank"),
    [
        ((4, 3, 2, 1), (1, 1, 6, 1)),
        ((1, 2, 3, 4), (1, 6, 1, 1)),  # heavier ones are compared first
        ((1, 9, 3, 2), (1, 6, 1, 1)),
        ((5, 5, 5, 5), (9,)),  # equal ones are added up
        ((7, 0, 7, 0), (7,)),  # no weight, no question
        ((0, 1, 2, 1), (6, 2)),
        ((0, 0, 0, 0), ()),
    ],
)
def test_weights_say_what_is_compared_first_what_together_and_what_not_at_all(
    weights: tuple[int, int, int, int], rank: tuple[int, ...]
) -> None:
    tightest, whole, gaps, spare = weights
    policy = Policy(rank_tightest=tightest, rank_whole_domain=whole, rank_usable_gaps=gaps, rank_spare=spare)

    assert ranks(policy) == [rank]


def test_every_part_of_a_gang_counts_towards_its_rank() -> None:
    parts = [
        Share(("b",), (*fits(1, 2, shreds=1), *fits(0, left=1, prefix="x")), 2, breaks_whole=True),
        Share(("a",), fits(3, 4, prefix="y"), 2, breaks_whole=True),
    ]
    (only,) = rank_gangs({("d",): (1, parts)}, DEFAULTS)

    assert only.rank == (1, 2, 2, 1)  # two whole groups broken, two gaps, one part without a spare
    assert only.points == 10
    assert [(group, fit.node_id) for group, fit in only.fits] == [
        (("a",), "y1"), (("a",), "y0"), (("b",), "n1"), (("b",), "n0"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("weights", "alone"),
    [((4, 3, 2, 1), True), ((3, 3, 2, 1), False), ((3, 2, 3, 1), False), ((3, 2, 1, 3), False), ((0, 0, 0, 0), False)],
)
def test_tightness_stands_alone_where_nothing_weighs_as_much(weights: tuple[int, int, int, int], alone: bool) -> None:  # noqa: FBT001 - a column of the table
    tightest, whole, gaps, spare = weights
    policy = Policy(rank_tightest=tightest, rank_whole_domain=whole, rank_usable_gaps=gaps, rank_spare=spare)

    assert tightest_alone(policy) is alone


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


def test_chance_never_reaches_a_gang_that_leaves_no_spare() -> None:
    scene = "a1 A ....\na2 A ....x\na3 A ####\nb1 B ....\nb2 B ....\nb3 B ####\nc1 C ....\nc2 C ....\nc3 C ####"

    assert {chosen(scene, size=1, top_n=3, seed=seed)[0] for seed in range(9)} == {"b", "c"}


@given(seed=st.integers(), top_n=st.integers(1, 9))
def test_the_seed_is_recorded_with_the_decision(seed: int, top_n: int) -> None:
    answer = plan(pool(THREE_EQUAL_ONE_WIDER), asked(4, 2), Policy(top_n=top_n), seed=seed)

    assert isinstance(answer, Plan)
    assert answer.seed == seed
