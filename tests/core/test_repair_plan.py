"""A repair moves as few members as it can inside their value, else the whole gang; it takes from nobody."""

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Booked, Policy, Reservation
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.repair.plan import Repaired, plan_repair
from muster_coordinator.core.snapshot import Snapshot
from tests.support.drawings import KEY, OTHERS, WINDOW, drawn_members, placed, pool, with_gang

TWO_IN_A = "a1:0123 a2:0123"


def repaired(
    drawing: str, bad: str, members: str = TWO_IN_A, value: str | None = "A", turnaround_ms: int = 0
) -> Repaired | Refusal:
    gang = placed(members, len(members.split()), value)
    snapshot = with_gang(pool(drawing), gang)
    nodes = frozenset(bad.split())
    return plan_repair(gang, nodes, snapshot, gang.window, Policy(turnaround_ms=turnaround_ms), seed=7)


def moves(drawing: str, bad: str, members: str = TWO_IN_A, value: str | None = "A") -> str:
    """Draw a repair as `kept + added`, or its refusal's code."""
    answer = repaired(drawing, bad, members, value)
    if isinstance(answer, Refusal):
        return answer.code
    return f"{drawn_members(answer.kept)} + {drawn_members(answer.added)}"


def test_only_the_bad_member_moves_and_only_inside_its_value() -> None:
    # B would hold the whole gang, more tightly than A.
    assert moves("a1 A ....\na2 A ....\na3 A ....\nb1 B ....\nb2 B ....", bad="a2") == "a1:0123 + a3:0123"


def test_where_its_value_has_no_node_left_the_whole_gang_moves() -> None:
    assert moves("a1 A ....\na2 A ....\na3 A ###.\nb1 B ....\nb2 B ....", bad="a2") == " + b1:0123 b2:0123"


def test_a_gang_that_needs_no_common_value_moves_one_member_anywhere() -> None:
    assert moves("a1 A ....\na2 A ....\nb1 B ....", bad="a2", value=None) == "a1:0123 + b1:0123"


def test_a_whole_move_may_use_the_gang_s_own_good_nodes_again() -> None:
    assert moves("a1 B ....\na2 A ....\nb1 B ....", bad="a2") == " + a1:0123 b1:0123"


def test_where_nothing_fits_the_repair_says_so() -> None:
    assert moves("a1 A ....\na2 A ....\nb1 B ....", bad="a2") == "doesNotFit"


def test_a_gang_whose_every_member_is_bad_moves_whole() -> None:
    assert moves("a1 A ....\na2 A ....\nb1 B ....\nb2 B ....", bad="a1 a2") == " + b1:0123 b2:0123"


def test_a_gang_that_moves_whole_goes_where_it_would_be_placed_anew() -> None:
    tighter_in_b = "a1 A ....\na2 A ....\na3 A ....\na4 A ....\na5 A ....\nb1 B ....\nb2 B ...."

    assert moves(tighter_in_b, bad="a1 a2") == " + b1:0123 b2:0123"


def test_a_kept_member_s_node_takes_no_second_member() -> None:
    # a1 has room for two members, but a gang is on distinct nodes.
    assert moves("a1 A ........\na2 A ....\nb1 B ....", bad="a2") == "doesNotFit"


def test_others_bookings_and_holds_are_not_taken() -> None:
    assert moves("a1 A ....\na2 A ....\na3 A ...#\na4 A x...\na5 A .... cordoned", bad="a2") == "doesNotFit"


def test_the_turnaround_after_the_window_is_kept_free_of_the_next_booking() -> None:
    gang = placed(TWO_IN_A, 2)
    next_booking = Booked(WINDOW.end_ms + 10, WINDOW.end_ms + 20, 0b1111, OTHERS)
    snapshot = with_gang(pool("a1 A ....\na2 A ....\na3 A ...."), gang).with_booking("a3", next_booking)
    answers = [
        plan_repair(gang, frozenset({"a2"}), snapshot, gang.window, Policy(turnaround_ms=turnaround_ms), seed=0)
        for turnaround_ms in (10, 11)
    ]

    assert [type(answer) for answer in answers] == [Repaired, Refusal]


def test_the_seed_and_the_value_are_recorded() -> None:
    inside = repaired("a1 A ....\na2 A ....\na3 A ....", bad="a2")
    elsewhere = repaired("a1 A ....\na2 A ....\nb1 B ....\nb2 B ....", bad="a2")

    assert isinstance(inside, Repaired)
    assert isinstance(elsewhere, Repaired)
    assert (inside.agreed, inside.seed) == (((KEY, "A"),), 7)
    assert (elsewhere.agreed, elsewhere.seed) == (((KEY, "B"),), 7)


SIGNS = ("....", "....", "....", "##..", "...x", ".... cordoned", ".... silent")


@st.composite
def scenes(draw: st.DrawFn) -> tuple[str, Reservation, frozenset[str]]:
    """A gang of up to three nodes of A, up to five other nodes of two values, and the nodes to avoid."""
    size = draw(st.integers(1, 3))
    own = [f"a{number} A {'.' * 4}" for number in range(size)]
    more = draw(st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from(SIGNS)), max_size=5))
    others = [f"{value.lower()}{number} {value} {signs}" for number, (value, signs) in enumerate(more, start=4)]
    gang = placed(" ".join(f"a{number}:012" for number in range(size)), size, count=3)
    names = [line.split()[0] for line in (*own, *others)]
    bad = draw(st.frozensets(st.sampled_from(names), min_size=1, max_size=3))
    return "\n".join((*own, *others)), gang, bad


def able(snapshot: Snapshot, gang: Reservation, bad: frozenset[str]) -> dict[str, list[str]]:
    """The nodes of each value that could carry one member: by the drawing's signs alone."""
    found: dict[str, list[str]] = {"A": [], "B": []}
    for node_id, view in snapshot.views.items():
        taken = sum(one.mask for one in view.node.booked if one.reservation_id != gang.id)
        open_atoms = 4 - (taken | view.held_mask).bit_count()
        is_open = view.node.intent == "schedulable" and view.node.silent_since_ms is None
        if node_id not in bad and is_open and open_atoms >= gang.shape.entries[0].count:
            found[view.node.labels[KEY]].append(node_id)
    return found


@given(scenes())
def test_no_repair_moves_more_members_than_any_other_would(scene: tuple[str, Reservation, frozenset[str]]) -> None:
    drawing, gang, bad = scene
    snapshot = with_gang(pool(drawing), gang)
    found = able(snapshot, gang, bad)
    good = [one.node_id for one in gang.members if one.node_id not in bad]
    whole = [list(choice) for nodes in found.values() for choice in combinations(nodes, gang.size)]
    fewest = gang.size - len(good) if len(found["A"]) >= gang.size and len(good) < gang.size else gang.size

    answer = plan_repair(gang, bad, snapshot, gang.window, Policy(), seed=0)

    if not whole:
        assert isinstance(answer, Refusal)
        return
    assert isinstance(answer, Repaired)
    assert len(answer.added) == fewest
    assert [one.node_id for one in answer.kept] == (good if fewest < gang.size else [])


@given(scenes())
def test_a_repaired_gang_is_whole_sound_and_takes_from_nobody(scene: tuple[str, Reservation, frozenset[str]]) -> None:
    drawing, gang, bad = scene
    snapshot = with_gang(pool(drawing), gang)

    answer = plan_repair(gang, bad, snapshot, gang.window, Policy(), seed=0)

    if isinstance(answer, Repaired):
        members = [(one.node_id, one.mask) for one in answer.kept] + [(one.node_id, one.mask) for one in answer.added]
        views = [snapshot.views[node_id] for node_id, _ in members]
        assert len({node_id for node_id, _ in members}) == len(members) == gang.size
        assert not bad & {node_id for node_id, _ in members}
        assert {view.node.labels[KEY] for view in views} == {dict(answer.agreed)[KEY]}
        for view, (_, mask) in zip(views, members, strict=True):
            others = [one.mask for one in view.node.booked if one.reservation_id != gang.id]
            assert mask.bit_count() == gang.shape.entries[0].count
            assert not mask & view.held_mask
            assert not any(mask & other for other in others)


@given(scenes())
def test_the_order_of_members_changes_no_repair(scene: tuple[str, Reservation, frozenset[str]]) -> None:
    drawing, gang, bad = scene
    snapshot = with_gang(pool(drawing), gang)
    turned = replace(gang, members=gang.members[::-1])

    first, second = (plan_repair(one, bad, snapshot, gang.window, Policy(), seed=0) for one in (gang, turned))

    assert first == (replace(second, kept=second.kept[::-1]) if isinstance(second, Repaired) else second)
