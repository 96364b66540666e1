"""Preferred keys: the narrowest that can be had, and the plan says which one that was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Grouping, Node, Request
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.snapshot import Snapshot
from tests.support.any_pool import ROW, gpu_requests, pools
from tests.support.drawings import KEY, RACK, asked, drawn, pool, same
from tests.support.oracle import best_level

NARROWING = Grouping((), (RACK, KEY))
SCENE = "a1 A .... rack=r1\na2 A .... rack=r1\na3 A .... rack=r2\nb1 B .... rack=r3\nb2 B .... rack=r4"


def level(answer: Plan | Refusal) -> str:
    return (
        answer.sentence if isinstance(answer, Refusal) else " ".join(f"{key}={value}" for key, value in answer.agreed)
    )


@pytest.mark.parametrize(
    ("size", "agreed", "members"),
    [
        (1, "rack=r2", "a3:0123"),  # the tightest rack
        (2, "rack=r1", "a1:0123 a2:0123"),
        (3, "fabric.domain=A", "a1:0123 a2:0123 a3:0123"),
        (4, "", "a1:0123 a2:0123 a3:0123 b1:0123"),
    ],
)
def test_the_narrowest_level_that_holds_the_gang_is_taken_and_told(size: int, agreed: str, members: str) -> None:
    answer = plan(pool(SCENE), asked(4, size, grouping=NARROWING))

    assert (level(answer), drawn(answer)) == (agreed, members)
    assert isinstance(answer, Plan)
    assert all(one.agreed == answer.agreed for one in answer.members)


def test_levels_are_tried_in_the_order_that_was_asked() -> None:
    wide_first = plan(pool(SCENE), asked(4, 2, grouping=Grouping((), (KEY, RACK))))

    assert level(wide_first) == "fabric.domain=B"  # tighter than A, though A has a rack that would do


def test_what_is_required_is_kept_on_every_level() -> None:
    grouping = Grouping((KEY,), (RACK,))

    assert level(plan(pool(SCENE), asked(4, 2, grouping=grouping))) == "fabric.domain=A rack=r1"
    assert level(plan(pool(SCENE), asked(4, 3, grouping=grouping))) == "fabric.domain=A"
    assert level(plan(pool(SCENE), asked(4, 4, grouping=grouping))).startswith(
        "no gang of 4 nodes fits in one fabric.domain (at most 3 nodes fit together)"
    )


def test_a_node_without_a_preferred_label_takes_part_where_that_level_is_given_up() -> None:
    scene = pool("a1 A .... rack=r1\na2 A ....")

    assert drawn(plan(scene, asked(4, 2, grouping=Grouping((KEY,), (RACK,))))) == "a1:0123 a2:0123"


def test_several_required_keys_must_all_agree() -> None:
    crossed = pool("a1 A .... rack=r1\na2 A .... rack=r2\nb1 B .... rack=r1\nb2 B .... rack=r2")

    assert drawn(plan(crossed, asked(4, 2, grouping=same(KEY, RACK)))) == (
        "no gang of 2 nodes fits in one fabric.domain and one rack (at most 1 node fits together): "
        "4 nodes free, but with too few others of the same value"
        "; waiting does not help, since at most 1 node could ever fit together"
    )
    assert level(plan(crossed, asked(4, 1, grouping=same(KEY, RACK)))) == "fabric.domain=A rack=r1"
    assert level(plan(crossed, asked(4, 1, grouping=same(RACK, KEY)))) == "rack=r1 fabric.domain=A"


def test_a_refusal_speaks_of_the_least_that_would_have_done() -> None:
    refusals = [
        plan(pool("a1 A .... rack=r1"), asked(4, 2, grouping=grouping))
        for grouping in (NARROWING, Grouping((KEY,), (RACK,)))
    ]

    assert [one.keys for one in refusals if isinstance(one, Refusal)] == [(), (KEY,)]
    assert level(refusals[0]).startswith(
        "no gang of 2 nodes fits (at most 1 node fits together): 1 node free, but too few"
    )


@given(nodes=pools, request=gpu_requests, turned=st.booleans())
def test_the_level_is_the_first_at_which_trying_everything_finds_a_gang(
    nodes: list[Node],
    request: Request,
    turned: bool,  # noqa: FBT001 - chance chooses it
) -> None:
    grouping = request.grouping
    preferred = (ROW, KEY, RACK) if turned else (RACK, KEY)
    wider = asked(
        request.shape.entries,
        request.size,
        grouping=Grouping(grouping.required[:1], preferred, grouping.segment_key, grouping.segment_size),
        window=request.window,
    )
    keys = best_level(nodes, wider)

    answer = plan(Snapshot.of("pool", 1, nodes), wider)

    assert (tuple(key for key, _ in answer.agreed) if isinstance(answer, Plan) else None) == keys


def test_the_levels_are_each_preferred_key_beside_the_required_and_then_those_alone() -> None:
    assert Grouping((KEY,), (ROW, RACK)).levels() == ((KEY, ROW), (KEY, RACK), (KEY,))
    assert Grouping().levels() == ((),)
