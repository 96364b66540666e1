"""What a loss of nodes does to drawn pools: by the repair's plans, each on what those before it have left."""

from dataclasses import replace

from muster_coordinator.core.model import Policy, Reservation, State
from muster_coordinator.core.repair.whatif import Loss, foretell
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.time import MS_MAX, Window
from tests.support.drawings import member, placed, pool, with_gang

POLICY = Policy()
POOL = "a1 A ..\na2 A ..\na3 A ..\nb1 B ..\nb2 B .."


def gang(name: str, members: str, window: Window, **changed: object) -> Reservation:
    drawn = members.split()
    made = placed(members, len(drawn), None, count=2, window=window)
    own = tuple(replace(member(part), allocation_id=f"{name}_{part}") for part in drawn)
    return replace(made, id=name, members=own, **changed)  # type: ignore[arg-type]  # fields of the caller's choice


def booked(*gangs: Reservation, drawing: str = POOL) -> Snapshot:
    snapshot = pool(drawing)
    for one in gangs:
        snapshot = with_gang(snapshot, one)
    return snapshot


def fates(
    *gangs: Reservation,
    lose: str,
    at: int = 0,
    until: int = MS_MAX,
    drawing: str = POOL,
    policy: Policy = POLICY,
    now: int = 0,
) -> list[tuple[str, str, str]]:
    """Return `(reservation, outcome, nodes afterwards)` in the order in which they are told."""
    loss = Loss(frozenset(lose.split()), Window(at, until))
    told = foretell(gangs, booked(*gangs, drawing=drawing), loss, policy, now_ms=now, seed=0)
    return [(one.reservation.id, one.outcome, " ".join(sorted(one.node_ids))) for one in told]


SOON, LATE = Window(100, 200), Window(300, 400)


def test_the_soonest_takes_the_spare_then_the_largest_then_the_oldest() -> None:
    drawing = "a1 A ..\na2 A ..\na3 A .."
    soon, late = gang("soon", "a2:01", SOON), gang("late", "a1:01", Window(150, 250))
    assert fates(late, soon, lose="a1 a2", drawing=drawing) == [("soon", "moves", "a3"), ("late", "fails", "")]

    small, large = gang("small", "a3:01", SOON), gang("large", "a1:01 a2:01", SOON)
    assert fates(small, large, lose="a1 a3", drawing="a1 A ..\na2 A ..\na3 A ..\na4 A ..") == [
        ("large", "moves", "a2 a4"),
        ("small", "fails", ""),
    ]

    young, old = gang("a young one", "a1:01", SOON, created_ms=2), gang("old", "a2:01", SOON, created_ms=1)
    assert [one[0] for one in fates(young, old, lose="a1 a2", drawing=drawing)] == ["old", "a young one"]


def test_what_was_moved_and_what_has_failed_is_seen_by_those_after_it() -> None:
    drawing = "a1 A ..\na2 A ..\na3 A .."
    first, second = gang("first", "a1:01", SOON), gang("second", "a2:01", Window(199, 300))
    assert fates(first, second, lose="a1 a2", drawing=drawing)[1] == ("second", "fails", "")
    assert fates(first, gang("second", "a2:01", Window(200, 300)), lose="a1 a2", drawing=drawing)[1][1] == "moves"
    gap = Policy(turnaround_ms=1)
    assert fates(first, gang("second", "a2:01", Window(200, 300)), lose="a1 a2", drawing=drawing, policy=gap)[1][1] == (
        "fails"
    )

    whole, single = gang("whole", "a1:01 a2:01 a3:01", SOON), gang("single", "b1:01", SOON)
    assert fates(whole, single, lose="a1 b1", drawing=f"{drawing}\nb1 B ..") == [
        ("whole", "fails", ""),
        ("single", "moves", "a2"),
    ]


def test_a_booking_is_touched_only_where_it_overlaps_the_loss() -> None:
    gangs = [gang("over", "a1:01", SOON), gang("hit", "a1:01", LATE), gang("later", "a1:01", Window(500, 600))]

    assert [one[:2] for one in fates(*gangs, lose="a1", at=200, until=500)] == [
        ("over", "over"),
        ("hit", "moves"),
        ("later", "later"),
    ]


def test_what_runs_by_then_stays_where_it_is() -> None:
    running = gang("running", "a1:01 a2:01", Window(0, 400), state=State.ACTIVE)

    assert fates(running, lose="a1") == [("running", "hit", "a1 a2")]
    assert fates(gang("begun", "a1:01", SOON), lose="a1", at=101) == [("begun", "hit", "a1")]
    assert fates(gang("begins", "a1:01", SOON), lose="a1", at=100)[0][1] == "moves"


def test_what_binds_now_is_replaced_for_the_rest_of_its_window() -> None:
    binding = gang("binding", "a1:01 a2:01", Window(0, 400), state=State.BINDING)

    assert fates(binding, lose="a1") == [("binding", "moves", "a2 a3")]


def test_what_should_have_begun_and_has_not_is_still_repaired() -> None:
    assert fates(gang("tardy", "a1:01", SOON), lose="a1", at=150, now=150)[0][1] == "moves"


def test_what_is_ending_or_beside_the_loss_has_no_fate() -> None:
    ending = gang("ending", "a1:01", Window(0, 400), state=State.ENDING)

    assert fates(ending, gang("beside", "a2:01", SOON), lose="a1") == []


def test_members_that_are_bad_already_move_with_those_that_are_lost() -> None:
    drawing = "a1 A ..\na2 A x.\na3 A ..\na4 A .."

    assert fates(gang("pair", "a1:01 a2:01", SOON), lose="a1", drawing=drawing) == [("pair", "moves", "a3 a4")]
