"""Is a booking still sound: what counts against a member, when it is moved, and when it is looked at again."""

from dataclasses import replace

import pytest

from muster_coordinator.core.model import BindState, Policy, State
from muster_coordinator.core.repair.check import Risk, dated, due_repair, next_check_ms, risks
from muster_coordinator.core.snapshot import Snapshot
from tests.support.drawings import WINDOW, member, placed, pool, with_gang

POLICY = Policy(repair_lead_ms=100, repair_horizon_ms=500, silence_repair_after_ms=50, unhealthy_after_ms=0)
PATIENT = replace(POLICY, unhealthy_after_ms=40)
GANG = placed("a1:01 a2:01", 2, count=2)
START_MS = WINDOW.start_ms


def found(drawing: str, gang_value: str | None = "A") -> list[tuple[str, str, str]]:
    gang = placed("a1:01 a2:01", 2, gang_value, count=2)
    return [(risk.node_id, risk.code, risk.cause) for risk in risks(gang, with_gang(pool(drawing), gang), POLICY)]


@pytest.mark.parametrize(
    ("second", "risk"),
    [
        ("a2 A ....", None),
        ("a2 A ..xx", None),  # other atoms than ours
        ("a2 A ..##", None),
        ("a2 A .x..", ("a2", "held", "xid")),
        ("a2 A .... cordoned", ("a2", "cordoned", "")),
        ("a2 A .... draining", ("a2", "draining", "")),
        ("a2 A .... leased", ("a2", "leased", "")),
        ("a2 A .... silent", ("a2", "unreachable", "")),
        ("a2 B ....", ("a2", "topologyChanged", "B")),
        ("a2 - ....", ("a2", "topologyChanged", "")),
        ("a2 A .", ("a2", "deviceLost", "")),
        # What is surely bad is said before what is only unknown.
        ("a2 A .x.. silent", ("a2", "held", "xid")),
        ("a2 B .... silent", ("a2", "topologyChanged", "B")),
    ],
)
def test_a_member_is_unsound_for_one_reason_at_a_time(second: str, risk: tuple[str, str, str] | None) -> None:
    assert found(f"a1 A ....\n{second}") == ([risk] if risk else [])


@pytest.mark.parametrize(
    ("second", "codes"),
    [
        ("a2 A .... cordoned", []),
        ("a2 A .... draining", []),
        ("a2 A .... leased", []),
        ("a2 A .... silent", []),
        ("a2 - ....", []),
        ("a2 A .x..", ["held"]),
        ("a2 B ....", ["topologyChanged"]),
    ],
)
def test_an_active_gang_is_harmed_by_faults_not_by_what_keeps_new_work_away(second: str, codes: list[str]) -> None:
    gang = replace(GANG, state=State.ACTIVE)
    harm = risks(gang, with_gang(pool(f"a1 A ....\n{second}"), gang), POLICY)

    assert [risk.code for risk in harm] == codes


def test_a_gang_without_a_key_does_not_mind_labels() -> None:
    assert found("a1 A ....\na2 B ....", gang_value=None) == []


def test_a_node_that_left_the_pool_and_a_member_that_was_lost_are_unsound() -> None:
    lost = replace(member("a1:01", BindState.LOST), reason="lostByReboot")
    gang = replace(GANG, members=(lost, GANG.members[1]))

    assert [(risk.code, risk.cause) for risk in risks(gang, pool("a1 A ...."), POLICY)] == [
        ("memberLost", "lostByReboot"),
        ("nodeGone", ""),
    ]


@pytest.mark.parametrize(
    ("line", "soft", "hardens_ms"),
    [
        ("a1 A .... silent", True, POLICY.silence_repair_after_ms),
        ("a1 - ....", True, None),
        ("a1 B ....", False, None),
        ("a1 A x...", False, None),
        ("a1 A .... cordoned", False, None),
    ],
)
def test_unknown_is_not_bad(line: str, soft: bool, hardens_ms: int | None) -> None:  # noqa: FBT001 - a column of the table
    (risk,) = risks(placed("a1:01", 1, count=2), pool(line), POLICY)

    assert (risk.soft, risk.hardens_ms) == (soft, hardens_ms)


def test_a_member_must_keep_every_label_it_was_booked_with() -> None:
    gang = placed("a1:01=r1 a2:01=r1 a3:01=r2 a4:01=r2", 4, count=2, segment_size=2)
    scene = pool("a1 A .... rack=r1\na2 A .... rack=r2\na3 B .... rack=r2\na4 A ....")

    assert [(risk.node_id, risk.code, risk.cause, risk.soft) for risk in risks(gang, scene, POLICY)] == [
        ("a2", "topologyChanged", "r2", False),
        ("a3", "topologyChanged", "B", False),
        ("a4", "topologyChanged", "", True),
    ]


def test_a_value_that_is_surely_another_is_said_before_one_that_is_only_absent() -> None:
    gang = placed("a1:01=r1", 1, count=2, segment_size=1)

    assert [(risk.cause, risk.soft) for risk in risks(gang, pool("a1 - .... rack=r2"), POLICY)] == [("r2", False)]
    assert [(risk.cause, risk.soft) for risk in risks(gang, pool("a1 - .... rack=r1 silent"), POLICY)] == [("", True)]


def test_of_several_holds_on_the_booked_atoms_the_first_by_name_is_told() -> None:
    node = replace(pool("a1 A ....").views["a1"].node, held={"xid": 1, "ecc": 2, "acute": 8})

    (risk,) = risks(placed("a1:01", 1, count=2), Snapshot.of("pool", 1, [node]), POLICY)
    assert (risk.code, risk.cause) == ("held", "ecc")


BAD = Risk("a1", "held", "xid")
SILENT = Risk("a1", "unreachable", soft=True, hardens_ms=700)
UNKNOWN = Risk("a1", "topologyChanged", soft=True)


@pytest.mark.parametrize(
    ("risk", "now_ms", "moves"),
    [
        (BAD, START_MS - 501, False),
        (BAD, START_MS - 500, True),
        (UNKNOWN, START_MS - 101, False),
        (UNKNOWN, START_MS - 100, True),
        (SILENT, 699, False),
        (SILENT, 700, True),
        (replace(SILENT, hardens_ms=400), START_MS - 501, False),
        (replace(SILENT, hardens_ms=5_000), START_MS - 100, True),
        (BAD, START_MS + 1, True),
    ],
)
def test_bad_moves_within_the_horizon_and_unknown_within_the_lead_or_once_it_lasts(
    risk: Risk,
    now_ms: int,
    moves: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert due_repair(GANG, [risk], now_ms, POLICY) == (frozenset({"a1"}) if moves else frozenset())


@pytest.mark.parametrize(
    ("risk", "now_ms", "again_ms"),
    [
        (None, 0, START_MS - 100),
        (None, START_MS - 100, None),
        (BAD, 0, START_MS - 500),
        (BAD, START_MS - 500, START_MS - 100),
        (SILENT, START_MS - 500, 700),
        (SILENT, 700, START_MS - 100),
        (replace(SILENT, hardens_ms=950), START_MS - 100, 950),
        (UNKNOWN, START_MS - 500, START_MS - 100),
        (UNKNOWN, START_MS, None),
    ],
)
def test_a_booking_is_looked_at_again_at_the_next_hour_at_which_the_answer_may_change(
    risk: Risk | None, now_ms: int, again_ms: int | None
) -> None:
    assert next_check_ms(GANG, [risk] if risk else [], now_ms, POLICY) == again_ms


LATELY = replace(UNKNOWN, since_ms=START_MS - 110)
DRAINING = Risk("a1", "draining")


@pytest.mark.parametrize(
    ("risk", "now_ms", "moves"),
    [
        (LATELY, START_MS - 71, False),
        (LATELY, START_MS - 70, True),
        (replace(LATELY, since_ms=START_MS), START_MS, False),  # not even at the start
        (replace(SILENT, since_ms=650), 689, False),
        (replace(SILENT, since_ms=680), 700, False),
        (replace(SILENT, since_ms=680), 720, True),
        (replace(BAD, since_ms=START_MS - 10), START_MS - 10, True),
    ],
)
def test_what_is_only_unknown_moves_nothing_before_it_has_lasted(
    risk: Risk,
    now_ms: int,
    moves: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert due_repair(GANG, [risk], now_ms, PATIENT) == (frozenset({"a1"}) if moves else frozenset())


def test_a_node_that_is_drained_is_left_whatever_the_horizon() -> None:
    assert due_repair(GANG, [DRAINING], 0, POLICY) == {"a1"}
    assert due_repair(GANG, [Risk("a1", "cordoned")], 0, POLICY) == frozenset()


def test_a_risk_is_as_old_as_the_first_look_that_found_it() -> None:
    seen = dated([UNKNOWN, replace(SILENT, since_ms=3), BAD], {("a1", "topologyChanged"): 5, ("a2", "held"): 6}, 9)

    assert [risk.since_ms for risk in seen] == [5, 3, 9]


@pytest.mark.parametrize("policy", [POLICY, PATIENT])
@pytest.mark.parametrize("risk", [BAD, SILENT, UNKNOWN, None, LATELY, replace(SILENT, since_ms=890)])
def test_no_hour_at_which_a_member_must_move_is_slept_through(risk: Risk | None, policy: Policy) -> None:
    """Looking only when told finds the first instant of a due repair that looking always finds."""
    known = [risk] if risk else []
    always = next((ms for ms in range(START_MS) if due_repair(GANG, known, ms, policy)), None)
    told: int | None = 0
    while told is not None and not due_repair(GANG, known, told, policy):
        told = next_check_ms(GANG, known, told, policy)

    assert told == always


def test_what_is_wrong_is_said_in_words() -> None:
    said = [risk.sentence for risk in (BAD, SILENT, Risk("a1", "topologyChanged", "B"))]

    assert said == [
        "a booked device is on hold (xid)",
        "the node is silent",
        "the node is on another topology value than it was booked with (B)",
    ]
