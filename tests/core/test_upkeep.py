"""Maintenance as the planner and the repair see it: who is kept away, who is wanted away, and until when."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import MaintenanceWindow, Node, Policy, State
from muster_coordinator.core.placement.pipeline import plan
from muster_coordinator.core.placement.reasons import Blocker, Refusal
from muster_coordinator.core.placement.upkeep import Upkeep
from muster_coordinator.core.repair.check import due_repair, next_check_ms, risks
from muster_coordinator.core.repair.plan import plan_repair
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.time import Window
from tests.support.any_pool import pools, windows
from tests.support.drawings import UPKEEP, WINDOW, asked, drawn, nodes, placed, pool, with_gang

POLICY = Policy(repair_lead_ms=100, repair_horizon_ms=500, retry_interval_ms=7)
GANG = placed("a1:01 a2:01", 2, count=2)


def wanted_away(drawing: str, state: State = State.PLACED) -> list[tuple[str, str, bool]]:
    gang = replace(GANG, state=state)
    found = risks(gang, with_gang(pool(drawing), gang), POLICY)
    return [(risk.node_id, risk.code, risk.is_for_maintenance) for risk in found]


def test_a_node_in_maintenance_is_named_as_what_blocks_and_until_when() -> None:
    refused = plan(pool("a1 A .... maintenance\na2 A ####\na3 A xxxx"), asked(4, key=None))

    assert isinstance(refused, Refusal)
    assert set(refused.blockers) == {
        Blocker("maintenance", 1, WINDOW.end_ms),
        Blocker("booked", 1, WINDOW.end_ms),
        Blocker("held", 1, None),
    }
    assert "1 node in maintenance until 1970-01-01T00:00:02Z" in refused.sentence


def test_a_window_before_or_after_the_maintenance_is_free() -> None:
    upkept = pool("a1 A .... maintenance")

    assert drawn(plan(upkept, asked(4, window=Window(0, 1_000)))) == "a1:0123"
    assert drawn(plan(upkept, asked(4, window=Window(2_000, 3_000)))) == "a1:0123"
    assert isinstance(plan(upkept, asked(4, window=Window(1_999, 3_000))), Refusal)


def test_r27_a_repair_never_goes_to_a_node_in_maintenance() -> None:
    drawing = "a1 A ....\na2 A .x..\na3 A .... maintenance\na4 A ...."
    gang = with_gang(pool(drawing), GANG)

    answer = plan_repair(GANG, frozenset({"a2"}), gang, GANG.window, POLICY, seed=0)
    full = with_gang(pool(drawing.rpartition("\n")[0]), GANG)
    refused = plan_repair(GANG, frozenset({"a2"}), full, GANG.window, POLICY, seed=0)

    assert not isinstance(answer, Refusal)
    assert [one.node_id for one in answer.added] == ["a4"]
    assert isinstance(refused, Refusal)
    assert ("maintenance", 1) in [(one.code, one.nodes) for one in refused.blockers]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("a2 A .... maintenance", [("a2", "maintenance", True)]),
        ("a2 A .x.. maintenance", [("a2", "held", True)]),
        ("a2 A .... silent maintenance", [("a2", "unreachable", True)]),
        ("a2 A .x..", [("a2", "held", False)]),
        ("a2 A ....", []),
    ],
)
def test_a_member_is_wanted_away_for_maintenance_besides_what_else_is_wrong(
    second: str, found: list[tuple[str, str, bool]]
) -> None:
    assert wanted_away(f"a1 A ....\n{second}") == found


def test_the_turnaround_of_a_booking_is_in_the_way_too() -> None:
    early = replace(GANG, start_ms=0, duration_ms=WINDOW.start_ms)
    upkept = with_gang(pool("a1 A ....\na2 A .... maintenance"), early)

    assert risks(early, upkept, POLICY) == ()
    assert [one.code for one in risks(early, upkept, replace(POLICY, turnaround_ms=1))] == ["maintenance"]


def test_an_active_gang_is_not_harmed_by_maintenance() -> None:
    assert wanted_away("a1 A ....\na2 A .... maintenance", state=State.ACTIVE) == []


def test_maintenance_alone_makes_nothing_due_and_is_tried_again_after_a_while() -> None:
    found = risks(GANG, with_gang(pool("a1 A ....\na2 A .... maintenance"), GANG), POLICY)
    far_ms = WINDOW.start_ms - 600

    assert due_repair(GANG, found, WINDOW.start_ms, POLICY) == frozenset()
    assert next_check_ms(GANG, found, far_ms, POLICY) == far_ms + 7


@given(pools, st.dictionaries(st.integers(0, 7), windows), st.dictionaries(st.integers(0, 7), windows))
def test_the_nodes_with_maintenance_are_carried_on_from_pool_to_pool(
    some: list[Node], before: dict[int, Window], after: dict[int, Window]
) -> None:
    def upkept(node: Node, windows: dict[int, Window]) -> Node:
        window = windows.get(int(node.id[1:]))
        return replace(node, maintenance=(MaintenanceWindow(UPKEEP, window),) if window else ())

    first = Snapshot.of("pool", 1, [upkept(node, before) for node in some])
    Upkeep.of(first)
    changed = [upkept(node, after) for node in some if int(node.id[1:]) in {*before, *after}]

    second = first.with_nodes(2, changed)

    assert Upkeep.of(second).windows == {
        number: view.node.maintenance for number, view in enumerate(second.ordered) if view.node.maintenance
    }
    assert len(Upkeep.of(second).windows) == sum(int(node.id[1:]) in after for node in some)


def test_every_node_of_a_rack_in_maintenance_is_counted_once() -> None:
    rack = "\n".join(f"a{number} A .... maintenance" for number in range(1, 5))
    refused = plan(Snapshot.of("pool", 1, [*nodes(rack), *nodes("b1 A ####")]), asked(4, 2))

    assert isinstance(refused, Refusal)
    assert [(one.code, one.nodes) for one in refused.blockers] == [("maintenance", 4), ("booked", 1)]


def test_the_first_maintenance_to_be_over_dates_the_blocker_and_one_at_another_time_blocks_nothing() -> None:
    first, second, third = nodes("a1 A .... maintenance\na2 A .... maintenance\na3 A ####")
    longer = MaintenanceWindow("mnt_2", Window(1_500, 5_000))
    past = MaintenanceWindow("mnt_3", Window(0, 1_000))
    both = replace(second, maintenance=(*second.maintenance, longer))
    snapshot = Snapshot.of(
        "pool", 1, [replace(first, maintenance=(longer,)), both, replace(third, maintenance=(past,))]
    )

    refused = plan(snapshot, asked(4, key=None))
    sooner = plan(snapshot.with_nodes(2, [first]), asked(4, key=None))

    assert isinstance(refused, Refusal)
    assert isinstance(sooner, Refusal)
    assert [one for one in refused.blockers if one.code == "maintenance"] == [Blocker("maintenance", 2, 5_000)]
    assert [one for one in sooner.blockers if one.code == "maintenance"] == [Blocker("maintenance", 2, 2_000)]
    assert [one.nodes for one in refused.blockers if one.code == "booked"] == [1]
