"""Who leaves a gang that gets smaller: the worst, in an order that does not depend on chance, by whole segments."""

from dataclasses import replace

import pytest

from muster_coordinator.core.model import BindState, Member, Policy, State
from muster_coordinator.core.repair.shrink import leaving, split_segments
from tests.support.drawings import drawn_members, placed, pool, with_gang

POLICY = Policy()


def left(drawing: str, size: int, members: str, *, stay: int, segment_size: int = 0) -> str:
    gang = placed(members, size, count=2, segment_size=segment_size)
    return " ".join(one.node_id for one in leaving(gang, stay, with_gang(pool(drawing), gang), POLICY))


@pytest.mark.parametrize(
    ("drawing", "order"),
    [
        ("a1 A ..\na2 A ..\na10 A ..", "a10 a2"),  # equals: the last by name, as people count
        ("a1 A ..\na2 A .x\na10 A ..", "a2 a10"),
        ("a1 A .. silent\na2 A .x\na10 A ..", "a2 a1"),  # at risk before silent
        ("a1 A .. silent\na2 A ..x\na10 A ..", "a1 a2"),  # silent before unsound: another device of it is on hold
        ("a1 A .. draining\na2 A .. silent\na10 A ..", "a1 a2"),
        ("a1 B ..\na2 A .. silent\na10 A ..", "a1 a2"),
    ],
)
def test_the_worst_members_leave_first(drawing: str, order: str) -> None:
    assert left(drawing, 3, "a1:01 a2:01 a10:01", stay=1) == order


def test_a_member_that_is_lost_leaves_before_all_others() -> None:
    gang = placed("a1:01 a2:01", 2, count=2)
    lost = replace(gang.members[0], bind=BindState.LOST)
    gang = replace(gang, state=State.ACTIVE, members=(lost, gang.members[1]))

    assert drawn_members(leaving(gang, 1, pool("a1 A ..\na2 A .x"), POLICY)) == "a1:01"


def test_a_node_that_has_left_the_pool_is_worth_nothing() -> None:
    gang = placed("a1:01 a2:01", 2, count=2)

    assert drawn_members(leaving(gang, 1, pool("a1 A .."), POLICY)) == "a2:01"


def test_a_fault_of_late_speaks_against_a_node() -> None:
    gang = placed("a1:01 a2:01", 2, count=2)
    calm = pool("a1 A ..\na2 A ..")
    node = replace(calm.views["a1"].node, fault_ms=1)

    assert drawn_members(leaving(gang, 1, calm.with_nodes(2, [node]), POLICY)) == "a1:01"


@pytest.mark.parametrize(
    ("drawing", "stay", "gone"),
    [
        ("", 2, "b2 b1"),
        ("b1 A ..", 2, "b2 b1"),
        ("a2 A .x", 2, "a2 a1"),
    ],
)
def test_whole_segments_leave_those_with_the_worst_member_first(drawing: str, stay: int, gone: str) -> None:
    sound = {name: f"{name} A .. rack=r{1 if name[0] == 'a' else 2}" for name in ("a1", "a2", "b1", "b2")}
    bad = {line.split()[0]: f"{line} {sound[line.split()[0]].split()[-1]}" for line in drawing.splitlines()}

    found = left(
        "\n".join({**sound, **bad}.values()), 4, "a1:01=r1 a2:01=r1 b1:01=r2 b2:01=r2", stay=stay, segment_size=2
    )

    assert found == gone


def test_of_several_segments_of_one_value_each_leaves_by_itself() -> None:
    drawing = "\n".join(f"a{number} A .. rack=r1" for number in range(1, 5))

    assert left(drawing, 4, "a1:01=r1 a2:01=r1 a3:01=r1 a4:01=r1", stay=2, segment_size=2) == "a4 a3"


@pytest.mark.parametrize(("names", "split"), [("a1 a2", ""), ("a1 b1", "r1 r2"), ("a1 a2 b1", "r2"), ("", "")])
def test_a_segment_leaves_whole_or_stays_whole(names: str, split: str) -> None:
    gang = placed("a1:01=r1 a2:01=r1 b1:01=r2 b2:01=r2", 4, count=2, segment_size=2)
    gone: list[Member] = [one for one in gang.members if one.node_id in names.split()]

    assert " ".join(agreed[-1][1] for agreed in split_segments(gang, gone)) == split


def test_a_gang_without_segments_is_split_anyhow() -> None:
    gang = placed("a1:01 a2:01", 2, count=2)

    assert split_segments(gang, gang.members[:1]) == ()
