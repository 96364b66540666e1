"""A gang in segments: each inside one value of its key, all of them inside what the whole gang agrees on."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Grouping, Node, Policy, Request
from muster_coordinator.core.placement.gang import shared_out
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.snapshot import Snapshot
from tests.support.any_pool import gpu_requests, policies, pools
from tests.support.drawings import KEY, RACK, asked, drawn, pool
from tests.support.oracle import can_give, domains, size_max

IN_A_FABRIC = Grouping((KEY,), (), RACK, 2)
ANYWHERE = Grouping((), (), RACK, 2)


def racks(**counts: int) -> str:
    """Draw as many nodes as are told in each rack, as `A_r1=3`."""
    return "\n".join(
        f"{name.replace('_', '').lower()}n{number} {name.partition('_')[0]} .... rack={name.partition('_')[2]}"
        for name, count in counts.items()
        for number in range(count)
    )


def shares_of(answer: Plan | Refusal) -> list[tuple[str, int]]:
    assert isinstance(answer, Plan)
    return list(Counter(dict(one.agreed)[RACK] for one in answer.members).items())


@given(nodes=pools, request=gpu_requests, policy=policies)
def test_every_segment_is_inside_one_value_and_the_gang_inside_one_domain(
    nodes: list[Node], request: Request, policy: Policy
) -> None:
    """S03: the parts of a gang are placed together or not at all."""
    answer = plan(Snapshot.of("pool", 1, nodes), request, policy)
    grouping = request.grouping

    if isinstance(answer, Plan) and grouping.segment_key is not None:
        by_id = {node.id: node for node in nodes}
        assert len(answer.members) == request.size
        for at in range(0, request.size, grouping.segment_size):
            # Members stand segment by segment.
            parts = answer.members[at : at + grouping.segment_size]
            assert len({by_id[one.node_id].labels[grouping.segment_key] for one in parts}) == 1
            assert len({one.agreed for one in parts}) == 1
        for key in grouping.required:
            assert len({by_id[one.node_id].labels[key] for one in answer.members}) == 1
        for one in answer.members:
            assert one.agreed == (
                *answer.agreed,
                (grouping.segment_key, by_id[one.node_id].labels[grouping.segment_key]),
            )


@given(nodes=pools, request=gpu_requests)
def test_a_refused_gang_in_segments_says_how_many_whole_segments_fit_together(
    nodes: list[Node], request: Request
) -> None:
    answer = plan(Snapshot.of("pool", 1, nodes), request)

    if isinstance(answer, Refusal):
        able = [node for node in nodes if can_give(node, request)]
        grouping = request.grouping
        assert answer.size_max == size_max(domains(able, request, grouping.required), request)
        assert answer.size_max % max(1, grouping.segment_size) == 0
        assert (answer.segment_key, answer.segment_size) == (grouping.segment_key, grouping.segment_size)
        assert answer.keys == grouping.required


@given(
    counts=st.dictionaries(st.sampled_from([(name,) for name in "abcdef"]), st.integers(0, 7)),
    segments=st.integers(1, 6),
    segment_size=st.integers(1, 3),
)
def test_a_gang_is_shared_out_to_as_few_groups_as_can_hold_it(
    counts: dict[tuple[str, ...], int], segments: int, segment_size: int
) -> None:
    size = segments * segment_size
    room = {group: count // segment_size * segment_size for group, count in counts.items()}
    fewest = next(
        (
            many
            for many in range(1, len(room) + 1)
            if any(sum(room[one] for one in some) >= size for some in combinations(room, many))
        ),
        None,
    )

    shares = shared_out(counts, size, segment_size)
    turned = shared_out(dict(reversed(counts.items())), size, segment_size)

    assert shares == turned
    if fewest is None:
        assert shares == {}
    else:
        assert sum(shares.values()) == size
        assert len(shares) == fewest
        assert all(0 < share <= room[group] and share % segment_size == 0 for group, share in shares.items())


@pytest.mark.parametrize(
    ("counts", "size", "segment_size", "shares"),
    [
        ({"a": 4, "b": 2}, 2, 2, {"b": 2}),  # the tightest that takes all
        ({"a": 5, "b": 4}, 4, 2, {"b": 4}),
        ({"a": 4, "b": 4}, 4, 2, {"a": 4}),  # then by name
        ({"a": 4, "b": 6, "c": 2}, 8, 2, {"b": 6, "c": 2}),  # the largest first, and for the rest the tightest
        ({"a": 4, "b": 4, "c": 3}, 6, 2, {"a": 4, "c": 2}),
        ({"a": 3, "b": 3}, 6, 2, {}),  # four in whole segments
        ({"a": 1, "b": 1}, 2, 2, {}),
        ({"a": 1, "b": 1}, 2, 1, {"a": 1, "b": 1}),
        ({}, 2, 2, {}),
    ],
)
def test_the_largest_group_is_filled_first_and_the_rest_goes_where_it_is_tightest(
    counts: dict[str, int], size: int, segment_size: int, shares: dict[str, int]
) -> None:
    given_counts: dict[tuple[str, ...], int] = {(name,): count for name, count in counts.items()}

    assert shared_out(given_counts, size, segment_size) == {(name,): count for name, count in shares.items()}


def test_a_gang_in_segments_never_spans_two_values_of_what_is_required() -> None:
    scene = pool(racks(A_r1=2, A_r2=1, B_r3=2))

    assert shares_of(plan(scene, asked(4, 4, grouping=ANYWHERE))) == [("r1", 2), ("r3", 2)]
    assert drawn(plan(scene, asked(4, 4, grouping=IN_A_FABRIC))) == (
        "no gang of 4 nodes fits in one fabric.domain, 2 by 2 in one rack (at most 2 nodes fit together): "
        "5 nodes free, but with too few others of the same value"
        "; waiting does not help, since at most 2 nodes could ever fit together"
    )


def test_racks_of_one_name_in_two_fabrics_are_two_racks() -> None:
    scene = pool(racks(A_r1=1, B_r1=1))

    assert shares_of(plan(scene, asked(4, 2, grouping=ANYWHERE))) == [("r1", 2)]
    assert isinstance(plan(scene, asked(4, 2, grouping=IN_A_FABRIC)), Refusal)


def test_the_fabric_with_the_fewest_nodes_to_spare_takes_the_segments() -> None:
    scene = pool(racks(A_r1=2, A_r2=2, A_r3=1, B_r4=2, B_r5=2))
    answer = plan(scene, asked(4, 4, grouping=IN_A_FABRIC))

    assert shares_of(answer) == [("r4", 2), ("r5", 2)]
    assert isinstance(answer, Plan)
    assert answer.agreed == ((KEY, "B"),)
    assert answer.members[0].agreed == ((KEY, "B"), (RACK, "r4"))


def test_members_stand_segment_by_segment_and_by_name_in_each() -> None:
    scene = pool("n1 A .... rack=r2\nn2 A .... rack=r1\nn10 A .... rack=r1\nn4 A .... rack=r2")

    assert drawn(plan(scene, asked(4, 4, grouping=IN_A_FABRIC))) == "n2:0123 n10:0123 n1:0123 n4:0123"


def test_a_rack_that_is_taken_whole_is_not_broken() -> None:
    # Equally tight: A takes one rack whole and breaks none, B would break one that is wholly free.
    scene = pool(f"{racks(A_r1=2)}\nax A .... rack=r2\n{racks(B_r3=3)}")

    assert shares_of(plan(scene, asked(4, 2, grouping=IN_A_FABRIC))) == [("r1", 2)]


@pytest.mark.parametrize(
    ("drawing", "size", "code"),
    [
        (racks(A_r1=2, A_r2=2), 4, None),
        (racks(A_r1=3, A_r2=1), 4, "neverFits"),
        (racks(A_r1=2, A_r2=1) + "\nax A .... rack=r2 silent", 4, "doesNotFit"),
        (racks(A_r1=2, A_r2=1) + "\nax A .... rack=0", 4, "neverFits"),
        (racks(A_r1=2, A_r2=1) + "\nax A ....", 4, "neverFits"),
        (racks(A_r1=2, A_r2=1) + "\nax A #### rack=r2", 4, "doesNotFit"),
    ],
)
def test_what_waiting_cures_is_counted_in_whole_segments_too(drawing: str, size: int, code: str | None) -> None:
    answer = plan(pool(drawing), asked(4, size, grouping=ANYWHERE))

    assert (answer.code if isinstance(answer, Refusal) else None) == code


def test_segments_without_a_required_key_are_said_without_one() -> None:
    said = drawn(plan(pool("a1 A .... rack=r1\na2 A ...."), asked(4, 2, grouping=ANYWHERE)))

    assert said == (
        "no gang of 2 nodes fits, 2 by 2 in one rack (at most 0 nodes fit together): "
        "1 node without the label; 1 node free, but with too few others of the same value"
        "; waiting does not help, since at most 0 nodes could ever fit together"
    )
