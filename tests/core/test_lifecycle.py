"""The life of a gang: every state that any order of clock, reports and calls can reach, and what holds in each."""

from dataclasses import replace
from itertools import product

import pytest

from muster_coordinator.core.lifecycle.advance import next_step, pending_until_ms
from muster_coordinator.core.lifecycle.model import (
    MOVES,
    Activate,
    Check,
    End,
    Expire,
    Free,
    IllegalMoveError,
    Move,
    Order,
    Replace,
    Requeue,
    Step,
    moved,
)
from muster_coordinator.core.model import BindState, EndReason, Member, Policy, Reservation, State
from tests.support.lifecycle_world import (
    END_MS,
    INSTANTS_MS,
    POLICY,
    START_MS,
    World,
    after,
    at_rest,
    events,
    exposed,
    pending,
)

GONE = {BindState.RELEASED, BindState.FENCED, BindState.LOST}


def walked(first: World) -> dict[World, list[Step]]:
    """Every world at rest that can be reached, each with the steps that led to it from the event before."""
    seen: dict[World, list[Step]] = {}
    frontier = [at_rest(first)]
    while frontier:
        world, steps = frontier.pop()
        if world not in seen:
            seen[world] = steps
            frontier.extend(at_rest(happened) for happened in events(world))
    return seen


@pytest.fixture(scope="module")
def worlds() -> dict[World, list[Step]]:
    """The whole walk: with and without spare nodes, of a gang that may start late and of one whose end is fixed."""
    late, fixed = pending(), pending(latest_start_ms=None, fixed_end_ms=END_MS)
    firsts = [replace(first, has_spares=spares) for first in (late, fixed) for spares in (True, False)]
    return {world: steps for first in firsts for world, steps in walked(first).items()}


@pytest.fixture(scope="module")
def happenings(worlds: dict[World, list[Step]]) -> list[tuple[World, World]]:
    """Every world at rest, with each world that one event makes of it."""
    return [(world, happened) for world in worlds for happened in events(world)]


def test_every_state_and_every_step_is_reached(worlds: dict[World, list[Step]]) -> None:
    assert {world.gang.state for world in worlds} == set(State)
    assert {type(step) for steps in worlds.values() for step in steps} == {
        Expire, Requeue, Check, Order, Replace, Activate, End, Free,
    }  # fmt: skip


def test_every_history_comes_to_rest(worlds: dict[World, list[Step]]) -> None:
    assert max(map(len, worlds.values())) <= 6


def test_a_gang_has_all_its_members_on_distinct_nodes_or_none(worlds: dict[World, list[Step]]) -> None:
    for gang in (world.gang for world in worlds):
        whole = gang.state not in {State.PENDING, State.ENDED}
        assert len(gang.members) == len({one.node_id for one in gang.members}) == (gang.size if whole else 0)


def test_active_means_that_every_member_was_bound_after_the_start(happenings: list[tuple[World, World]]) -> None:
    for world, happened in happenings:
        if happened.next() == Activate():
            assert all(one.bind is BindState.BOUND for one in happened.gang.members)
            assert happened.gang.start_ms <= happened.now_ms < happened.gang.window.end_ms
            assert world.gang.state is State.BINDING


def test_no_node_is_told_to_bind_outside_the_window_or_before_its_atoms_are_free(
    happenings: list[tuple[World, World]],
) -> None:
    for _, happened in happenings:
        if isinstance(step := happened.next(), Order):
            told = [one for one in happened.gang.members if one.allocation_id in step.allocation_ids]
            assert told
            assert not any(one.blocked or one.ordered_ms is not None for one in told)
            assert happened.gang.start_ms <= happened.now_ms < happened.gang.window.end_ms


def test_nothing_stays_exposed_in_an_ended_gang(
    worlds: dict[World, list[Step]], happenings: list[tuple[World, World]]
) -> None:
    for _, happened in happenings:
        if happened.next() == Free():
            assert {one.bind for one in happened.gang.members} <= GONE
    assert all(exposed(world) == 0 for world in worlds if world.gang.state is State.ENDED)


def test_after_the_end_of_its_window_nothing_is_placed_binding_or_active(worlds: dict[World, list[Step]]) -> None:
    over = [world for world in worlds if world.now_ms >= world.gang.window.end_ms]

    assert {world.gang.state for world in over} <= {State.PENDING, State.ENDING, State.ENDED}


def test_what_has_ended_never_moves_again(happenings: list[tuple[World, World]]) -> None:
    for world, happened in happenings:
        if world.gang.state is State.ENDED:
            assert happened.gang == world.gang
            assert happened.next() is None


def test_a_member_is_replaced_only_when_its_node_failed_or_was_given_its_time(
    happenings: list[tuple[World, World]],
) -> None:
    for _, happened in happenings:
        if isinstance(step := happened.next(), Replace):
            for one in (one for one in happened.gang.members if one.allocation_id in step.allocation_ids):
                told_ms = one.ordered_ms if one.ordered_ms is not None else happened.gang.binding_since_ms
                assert told_ms is not None
                assert one.bind is BindState.LOST or happened.now_ms >= told_ms + POLICY.bind_timeout_ms
                assert one.bind is not BindState.BOUND


def test_from_anywhere_time_and_confirmations_lead_to_the_end(worlds: dict[World, list[Step]]) -> None:
    for world in worlds:
        late, _ = at_rest(replace(world, now_ms=INSTANTS_MS[-1]))
        released = replace(
            late,
            gang=replace(late.gang, members=tuple(replace(one, bind=BindState.RELEASED) for one in late.gang.members)),
        )
        assert at_rest(released)[0].gang.state is State.ENDED


def test_a_coordinator_that_slept_does_what_one_that_was_awake_has_done(worlds: dict[World, list[Step]]) -> None:
    """With no word from any node in between, it does not matter how often anybody looked."""
    for world in worlds:
        if world.gang.state is State.ACTIVE:
            slept, _ = at_rest(replace(world, now_ms=INSTANTS_MS[-1]))
            awake = world
            for instant_ms in (ms for ms in INSTANTS_MS if ms > world.now_ms):
                awake, _ = at_rest(replace(awake, now_ms=instant_ms))
            assert slept == awake


@pytest.mark.parametrize(("state", "move"), [*product(State, Move)])
def test_the_table_of_moves_is_total(state: State, move: Move) -> None:
    if (state, move) in MOVES:
        assert moved(state, move) is MOVES[state, move]
    else:
        with pytest.raises(IllegalMoveError, match=f"{state} has no move {move}"):
            moved(state, move)


def test_every_state_but_the_last_can_be_left_and_only_by_the_doors_of_the_design() -> None:
    exits = {state: {after for (before, _), after in MOVES.items() if before is state} - {state} for state in State}

    assert exits == {
        State.PENDING: {State.PLACED, State.ENDED},
        State.PLACED: {State.BINDING, State.PENDING, State.ENDED},
        State.BINDING: {State.ACTIVE, State.PENDING, State.ENDING},
        State.ACTIVE: {State.BINDING, State.ENDING},
        State.ENDING: {State.ENDED},
        State.ENDED: set(),
    }


def gang_of(state: State, *members: Member, **changes: object) -> Reservation:
    return replace(pending().gang, state=state, members=members, size=max(1, len(members)), **changes)  # type: ignore[arg-type]  # columns of a reservation, by name


def told(bind: BindState, ordered_ms: int | None = START_MS, *, blocked: bool = False, name: str = "a") -> Member:
    return Member(name, f"node_{name}", 1, 1, bind, ordered_ms=ordered_ms, blocked=blocked)


BOUND, BINDING, LOST = told(BindState.BOUND), told(BindState.BINDING), told(BindState.LOST)
WAITING = told(BindState.RESERVED, None, blocked=True)
READY = told(BindState.RESERVED, None)


@pytest.mark.parametrize(
    ("gang", "now_ms", "step"),
    [
        (gang_of(State.PENDING), START_MS + 5, None),
        (gang_of(State.PENDING), START_MS + 6, Expire()),
        (gang_of(State.PENDING, latest_start_ms=None), 1_000, None),
        (gang_of(State.PENDING, latest_start_ms=None, fixed_end_ms=END_MS), END_MS - 1, None),
        (gang_of(State.PENDING, latest_start_ms=None, fixed_end_ms=END_MS), END_MS, Expire()),
        (gang_of(State.PLACED, READY), START_MS - 1, None),
        (gang_of(State.PLACED, READY), START_MS, Check(starting=True)),
        (gang_of(State.PLACED, READY), END_MS - 1, Check(starting=True)),
        (gang_of(State.PLACED, READY), END_MS, Expire()),
        (gang_of(State.BINDING, READY, binding_since_ms=10), START_MS, Order(("a",))),
        (gang_of(State.BINDING, WAITING, binding_since_ms=10), 14, None),
        (gang_of(State.BINDING, WAITING, binding_since_ms=10), 15, Replace(("a",))),
        (gang_of(State.BINDING, READY, binding_since_ms=10), 19, Order(("a",))),
        (gang_of(State.BINDING, BINDING), 12, None),
        (gang_of(State.BINDING, BINDING), 13, Replace(("a",))),
        (gang_of(State.BINDING, LOST), 11, Replace(("a",))),
        (gang_of(State.BINDING, BOUND), 19, Activate()),
        (gang_of(State.BINDING, BOUND), END_MS, End(EndReason.EXPIRED)),
        (gang_of(State.BINDING, BOUND, activated_ms=START_MS), END_MS, End(EndReason.COMPLETED)),
        (gang_of(State.BINDING, BOUND, replace(BINDING, allocation_id="b")), 12, None),
        (gang_of(State.BINDING, LOST, replace(READY, allocation_id="b")), 12, Replace(("a",))),
        (gang_of(State.ACTIVE, BOUND), END_MS - 1, None),
        (gang_of(State.ACTIVE, BOUND), END_MS, End(EndReason.COMPLETED)),
        (gang_of(State.ENDING, BOUND), 99, None),
        (gang_of(State.ENDING, told(BindState.UNBINDING)), 99, None),
        (gang_of(State.ENDING, told(BindState.RELEASED)), 11, Free()),
        (gang_of(State.ENDED), 99, None),
    ],
)
def test_what_is_due_follows_from_state_and_clock(gang: Reservation, now_ms: int, step: Step | None) -> None:
    assert next_step(gang, now_ms, POLICY, None, 0) == step


def test_members_that_nobody_could_replace_are_tried_again_when_that_is_due() -> None:
    gang = gang_of(State.BINDING, LOST, activated_ms=START_MS)

    assert [next_step(gang, now_ms, POLICY, 12, 0) for now_ms in (11, 12)] == [None, Replace(("a",))]


@pytest.mark.parametrize("state", [State.PLACED, State.ACTIVE])
def test_a_check_is_taken_when_it_is_due_and_not_before(state: State) -> None:
    gang = gang_of(state, BOUND)

    assert [next_step(gang, now_ms, POLICY, 8, 0) for now_ms in (7, 8, 9)] == [
        None, Check(starting=False), Check(starting=False),
    ]  # fmt: skip


def test_pending_work_is_looked_at_when_it_is_due_and_given_up_where_it_is_too_late() -> None:
    gang = gang_of(State.PENDING)

    assert [next_step(gang, now_ms, POLICY, 12, 0) for now_ms in (11, 12, 13, START_MS + 6)] == [
        None, Requeue(), Requeue(), Expire(),
    ]  # fmt: skip


@pytest.mark.parametrize("latest_start_ms", [None, START_MS - 5, START_MS, START_MS + 3])
@pytest.mark.parametrize("fixed_end_ms", [None, END_MS])
def test_no_instant_at_which_the_wait_changes_is_slept_through(
    latest_start_ms: int | None, fixed_end_ms: int | None
) -> None:
    """Looking only when told finds the start that passes, and the instant from which on it is too late."""
    gang = gang_of(State.PENDING, latest_start_ms=latest_start_ms, fixed_end_ms=fixed_end_ms)
    told = {due for now_ms in range(2 * END_MS) if (due := pending_until_ms(gang, now_ms)) is not None}
    too_late = [now_ms for now_ms in range(2 * END_MS) if gang.window_from(now_ms) is None]

    assert START_MS in told
    assert set(too_late[:1]) <= told
    for now_ms in range(2 * END_MS):
        assert pending_until_ms(gang, now_ms) == min((due for due in told if due > now_ms), default=None)


def test_a_gang_with_a_member_missing_is_never_active() -> None:
    assert next_step(replace(gang_of(State.BINDING, BOUND), size=2), 12, POLICY, None, 0) is None


@pytest.mark.parametrize("member", [BINDING, WAITING])
def test_the_coordinator_s_own_absence_times_nobody_out(member: Member) -> None:
    policy = Policy(bind_timeout_ms=100, unbind_timeout_ms=0)
    gang = gang_of(State.BINDING, member, binding_since_ms=START_MS, duration_ms=10_000)
    back_ms = 5_000

    steps = [next_step(gang, now_ms, policy, None, back_ms) for now_ms in (back_ms, back_ms + 99, back_ms + 100)]

    assert steps == [None, None, Replace(("a",))]


@pytest.mark.parametrize(
    ("now_ms", "changes", "window"),
    [
        (0, {}, (10, 20)),
        (12, {}, (12, 22)),
        (15, {}, (15, 25)),
        (16, {}, None),
        (12, {"latest_start_ms": None, "fixed_end_ms": 20}, (12, 20)),
        (20, {"latest_start_ms": None, "fixed_end_ms": 20}, None),
        (10, {"latest_start_ms": 10}, (10, 20)),
        (11, {"latest_start_ms": 10}, None),
    ],
)
def test_late_work_books_from_now_for_its_duration_or_up_to_its_given_end(
    now_ms: int, changes: dict[str, object], window: tuple[int, int] | None
) -> None:
    booked = pending(**changes).gang.window_from(now_ms)

    assert (booked and (booked.start_ms, booked.end_ms)) == window


def test_no_step_asks_for_a_move_that_the_table_lacks(
    happenings: list[tuple[World, World]],
) -> None:
    for _, happened in happenings:
        if (step := happened.next()) is not None:
            after(happened, step)  # raises IllegalMoveError where the table has no such move
