"""A repair of a gang in segments: each member beside those it was booked with, else the whole gang again."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Node, Policy, Reservation
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.repair.plan import Repaired, plan_repair
from muster_coordinator.core.snapshot import Snapshot
from tests.support.drawings import KEY, RACK, drawn_members, placed, pool, with_gang
from tests.support.oracle import can_give, domains, size_max

FOUR = "a1:0123=r1 a2:0123=r1 a3:0123=r2 a4:0123=r2"
OWN = "a1 A .... rack=r1\na2 A .... rack=r1\na3 A .... rack=r2\na4 A .... rack=r2\n"


def moves(others: str, bad: str) -> str:
    """Draw a repair as `kept + added`, or its refusal's code."""
    gang = placed(FOUR, 4, segment_size=2)
    scene = with_gang(pool(OWN + others), gang)
    answer = plan_repair(gang, frozenset(bad.split()), scene, gang.window, Policy(), seed=0)
    if isinstance(answer, Refusal):
        return answer.code
    return f"{drawn_members(answer.kept)} + {drawn_members(answer.added)}"


def test_a_member_moves_inside_its_own_segment() -> None:
    # The rack beside it would be tighter.
    others = "a5 A .... rack=r1\na6 A .... rack=r1\na7 A .... rack=r2"

    assert moves(others, "a2") == "a1:0123 a3:0123 a4:0123 + a5:0123"
    assert moves(others, "a4") == "a1:0123 a2:0123 a3:0123 + a7:0123"
    assert moves(others, "a2 a4") == "a1:0123 a3:0123 + a5:0123 a7:0123"
    assert moves(others, "a1 a2 a4") == "a3:0123 + a5:0123 a6:0123 a7:0123"


def test_nodes_come_in_the_order_of_their_segments_whatever_that_of_the_members() -> None:
    gang = placed(FOUR, 4, segment_size=2)
    scene = with_gang(pool(f"{OWN}a5 A .... rack=r1\na7 A .... rack=r2"), gang)
    turned = replace(gang, members=gang.members[::-1])

    for one in (gang, turned):
        answer = plan_repair(one, frozenset({"a2", "a4"}), scene, gang.window, Policy(), seed=0)
        assert isinstance(answer, Repaired)
        assert drawn_members(answer.added) == "a5:0123 a7:0123"


def test_a_segment_is_never_mended_from_another_rack_nor_from_one_of_the_same_name_elsewhere() -> None:
    assert moves("b1 B .... rack=r1\na5 A .... rack=r3", "a2") == "doesNotFit"


def test_where_one_segment_cannot_be_mended_the_whole_gang_moves() -> None:
    others = "a5 A .... rack=r1\nb1 B .... rack=r3\nb2 B .... rack=r3\nb3 B .... rack=r4\nb4 B .... rack=r4"

    assert moves(others, "a2") == "a1:0123 a3:0123 a4:0123 + a5:0123"
    assert moves(others, "a2 a4") == " + b1:0123 b2:0123 b3:0123 b4:0123"


def test_a_whole_gang_that_moves_may_keep_a_segment_s_own_nodes() -> None:
    assert moves("a5 A .... rack=r3\na6 A .... rack=r3", "a4") == " + a1:0123 a2:0123 a5:0123 a6:0123"


SIGNS = ("....", "....", "....", "...#", "...x", ".... cordoned")


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Snapshot, Reservation, frozenset[str]]:
    """A gang of two segments of two in A, up to seven other nodes in three racks, and the nodes to avoid."""
    spot = st.tuples(st.sampled_from("AAB"), st.sampled_from(("r1", "r2", "r3")), st.sampled_from(SIGNS))
    more = draw(st.lists(spot, max_size=7))
    lines = [
        f"n{at} {value} {signs.replace(' ', f' rack={rack} ', 1)}{'' if ' ' in signs else f' rack={rack}'}"
        for at, (value, rack, signs) in enumerate(more)
    ]
    gang = placed(FOUR, 4, segment_size=2)
    scene = with_gang(pool(OWN + "\n".join(lines)), gang)
    return scene, gang, draw(st.frozensets(st.sampled_from(["a1", "a2", "a3", "a4", "n0", "n1"]), min_size=1))


def without_gang(scene: Snapshot, gang: Reservation) -> list[Node]:
    return [
        replace(view.node, booked=tuple(one for one in view.node.booked if one.reservation_id != gang.id))
        for view in scene.views.values()
    ]


@given(scenes())
def test_no_repair_moves_more_members_than_its_segments_need(
    scene_of: tuple[Snapshot, Reservation, frozenset[str]],
) -> None:
    scene, gang, bad = scene_of
    request = gang.request(gang.window)
    able = [node for node in without_gang(scene, gang) if node.id not in bad and can_give(node, request)]
    kept = [one for one in gang.members if one.node_id not in bad]
    spare = Counter(
        (node.labels[KEY], node.labels[RACK]) for node in able if node.id not in {one.node_id for one in kept}
    )
    missing = Counter((one.agreed[0][1], one.agreed[1][1]) for one in gang.members if one not in kept)
    whole = size_max(domains(able, request, (KEY,)), request) >= gang.size

    answer = plan_repair(gang, bad, scene, gang.window, Policy(), seed=0)

    if kept and missing and all(spare[values] >= wanted for values, wanted in missing.items()):
        assert isinstance(answer, Repaired)
        assert list(answer.kept) == kept
        labels = {node.id: (node.labels[KEY], node.labels[RACK]) for node in able}
        assert Counter(labels[one.node_id] for one in answer.added) == missing
    elif whole:
        assert isinstance(answer, Repaired)
        assert (answer.kept, len(answer.added)) == ((), gang.size)
    else:
        assert isinstance(answer, Refusal)


@given(scenes())
def test_the_order_of_members_changes_no_repair_of_segments(
    scene_of: tuple[Snapshot, Reservation, frozenset[str]],
) -> None:
    scene, gang, bad = scene_of
    turned = replace(gang, members=gang.members[::-1])

    first, second = (plan_repair(one, bad, scene, gang.window, Policy(), seed=0) for one in (gang, turned))

    assert first == (replace(second, kept=second.kept[::-1]) if isinstance(second, Repaired) else second)


@given(scenes())
def test_a_repaired_gang_is_whole_and_in_whole_segments(
    scene_of: tuple[Snapshot, Reservation, frozenset[str]],
) -> None:
    scene, gang, bad = scene_of
    able = {node.id for node in without_gang(scene, gang) if can_give(node, gang.request(gang.window))}

    answer = plan_repair(gang, bad, scene, gang.window, Policy(), seed=0)

    if isinstance(answer, Repaired):
        members = [(one.node_id, one.mask, one.agreed) for one in answer.kept]
        members += [(one.node_id, one.mask, one.agreed) for one in answer.added]
        assert len({node_id for node_id, _, _ in members}) == len(members) == gang.size
        assert not bad & {node_id for node_id, _, _ in members}
        for node_id, mask, agreed in members:
            labels = scene.views[node_id].node.labels
            assert mask == 0b1111
            assert agreed == ((KEY, labels[KEY]), (RACK, labels[RACK]))
        assert {agreed[0] for _, _, agreed in members} == set(answer.agreed)
        assert {one.node_id for one in answer.added} <= able
        assert all(count % 2 == 0 for count in Counter(agreed for _, _, agreed in members).values())
