from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product

import pytest

from muster_agent.core import machine
from muster_agent.core.desired import Desired, Fence, Order
from muster_agent.core.outcomes import BACKOFF_MS
from muster_agent.core.records import Act, Facts, Grant, Revoke, Save, SaveFence, State, Verify
from muster_shared.wire import Hold
from tests.support.agent_world import FACTS, HOUR_MS, World, desired, order

A, B = order("alloc_a"), order("alloc_b")
ON_GPU_1 = Hold(device="GPU-1", cause="xid", code=48, since_ms=0, clears_by="operator")
AFTER_BACKOFF_MS = BACKOFF_MS[-1]


def bound(*orders: Order) -> World:
    made = World()
    assert made.take(desired(1, orders)) is None
    made.settle()
    assert set(made.told().values()) == {"bound"}
    return made


def names(acts: list[Act]) -> list[str]:
    return [f"{type(act).__name__} {act.record.state}" if isinstance(act, Save) else type(act).__name__ for act in acts]


def once(kind: type[Act], state: str | None = None) -> Callable[[Act], str | None]:
    left = [1]

    def fails(act: Act) -> str | None:
        hit = isinstance(act, kind) and (not isinstance(act, Save) or state in {None, act.record.state})
        if hit and left:
            left.pop()
            return "no space left on device"
        return None

    return fails


# --- The order of acts


def test_intent_is_on_disk_before_a_tenant_gets_near_a_device_and_the_fence_before_both() -> None:
    world = bound(A)

    assert names(world.acts) == ["SaveFence", "Save binding", "Grant", "Save bound"]


def test_an_unbind_is_written_first_then_done_then_written_as_done() -> None:
    world = bound(A)
    world.acts.clear()

    world.take(desired(2))
    world.settle()

    assert names(world.acts) == ["SaveFence", "Save unbinding", "Revoke", "Save released"]
    assert world.told() == {}
    assert world.exposed == {}


def test_unbinds_go_before_binds() -> None:
    world = bound(A)
    world.acts.clear()

    world.take(desired(2, [B]))
    world.settle()

    assert names(world.acts)[1:4] == ["Save unbinding", "Revoke", "Save released"]
    assert world.told() == {"alloc_b": "bound"}


# --- Every cut point: killed at each act, before or after it took effect, then started again


def later(ms: int) -> Callable[[World], None]:
    def step(world: World) -> None:
        world.boot_ms += ms

    return step


def restarted_host(world: World) -> None:
    world.reboot("boot-2", artefacts_stay=True)


def held(world: World) -> None:
    world.facts = Facts(FACTS.devices, (Hold(device="GPU-0", cause="xid", code=79, since_ms=0, clears_by="operator"),))


Script = list[Desired | Callable[[World], None]]
SCRIPTS: dict[str, Script] = {
    "bind, unbind": [desired(1, [A]), desired(2)],
    "hand over": [desired(1, [A]), desired(2, [B])],
    "two at once": [desired(1, [A, order("alloc_c", "GPU-2")]), desired(2, [order("alloc_c", "GPU-2")])],
    "next generation": [desired(1, [A]), desired(2, [replace(A, generation=2)])],
    "grant ends": [desired(1, [replace(A, end_boot_ms=60_000)]), later(60_000)],
    "extended": [desired(1, [A]), desired(2, [order(end_boot_ms=20 * HOUR_MS)])],
    "reboot": [desired(1, [A]), restarted_host, desired(2)],
    "held": [held, desired(1, [A]), later(AFTER_BACKOFF_MS)],
    "bound when a hold comes": [desired(1, [A]), held, later(120_000)],
    "forgotten in the end": [desired(1, [A]), desired(2), later(25 * HOUR_MS)],
}


def play(script: Script, cuts: dict[int, str]) -> tuple[World, int]:
    world, number = World(), 0
    wanted: Desired | None = None
    for step in script:
        if isinstance(step, Desired):
            wanted = step
        else:
            step(world)
        while True:
            if world.live is None or (wanted and world.state.desired != wanted):
                assert wanted is None or world.take(wanted) is None
            act = machine.next_act(world.state, world.facts, world.boot_ms)
            if act is None:
                break
            number += 1
            assert number < 500
            match cuts.get(number):
                case None:
                    world.step()
                case "before":
                    world.kill()
                case _:
                    world.perform(act)
                    world.kill()
    return world, number


def outcome(world: World) -> object:
    records = {key: (record.state, record.generation) for key, record in world.records.items()}
    exposed = {key: (record.generation, record.devices) for key, record in world.exposed.items()}
    return records, exposed, world.told(), world.fence, world.state.applied_rev


@pytest.mark.parametrize("name", SCRIPTS)
def test_killed_at_any_two_acts_and_started_again_it_ends_the_same(name: str) -> None:
    script = SCRIPTS[name]
    calm, acts = play(script, {})
    moments = [(number, how) for number in range(1, acts + 4) for how in ("before", "after")]

    for first, second in product(moments, moments):
        if first[0] <= second[0]:
            cut, _ = play(script, dict([first, second]))
            assert outcome(cut) == outcome(calm), (first, second)


# --- Same boot, other boot


def test_a50_a_new_boot_voids_every_bind_until_it_is_dropped() -> None:
    world = bound(A)

    world.reboot("boot-2")
    world.settle()
    assert world.told() == {"alloc_a": "lostByReboot"}
    world.take(desired(1, [A]))
    world.settle()
    assert world.told() == {"alloc_a": "lostByReboot"}
    assert world.exposed == {}

    world.take(desired(2))
    world.settle()
    assert world.told() == {}


def test_the_deadline_of_another_boots_clock_says_nothing() -> None:
    world = bound(order(end_boot_ms=60_000))

    world.reboot("boot-2")
    world.boot_ms = 70_000
    world.settle()

    assert world.told() == {"alloc_a": "lostByReboot"}


def test_after_a_reboot_the_next_generation_binds_afresh() -> None:
    world = bound(A)

    world.reboot("boot-2")
    world.take(desired(2, [replace(A, generation=2)]))
    world.settle()

    assert world.told() == {"alloc_a": "bound"}
    assert world.exposed["alloc_a"].generation == 2


def test_artefacts_that_outlived_the_boot_are_taken_away_before_anything_is_heard() -> None:
    world = bound(A)

    world.reboot("boot-2", artefacts_stay=True)
    world.settle()

    assert world.exposed == {}


def test_a50_a_missing_artefact_of_the_same_boot_is_made_again_and_stays_bound() -> None:
    world = bound(A)

    world.kill()
    world.exposed.clear()
    world.settle()  # no coordinator yet

    assert world.exposed["alloc_a"].generation == 1
    assert world.told() == {"alloc_a": "bound"}


def test_l11_after_a_start_nothing_is_bound_before_the_coordinator_has_spoken() -> None:
    world = World()
    world.take(desired(1, [A]))
    world.step()
    world.step()
    assert world.records["alloc_a"].state == "binding"

    world.kill()
    world.settle()

    assert world.exposed == {}
    assert not [act for act in world.acts if isinstance(act, Grant)]


def test_l07_nothing_is_bound_before_the_first_full_reading() -> None:
    world = World(facts=None)
    world.take(desired(1, [A]))

    world.settle()
    assert world.told() == {"alloc_a": "blocked"}

    world.facts = FACTS
    world.settle()
    assert world.told() == {"alloc_a": "bound"}


# --- Fences


def test_a51_a_late_order_of_an_old_generation_changes_nothing_also_after_a_restart() -> None:
    world = bound(replace(A, generation=3))
    world.take(desired(3))
    world.settle()

    assert "oldRev" in (world.take(desired(2, [replace(A, generation=2)])) or "")
    world.kill()
    assert "oldRev" in (world.take(desired(2, [replace(A, generation=2)])) or "")
    # Even if it came under a new revision, the tombstone keeps it out.
    for generation in (2, 3):
        world.take(desired(3 + generation, [replace(A, generation=generation)]))
        world.settle()
        assert world.told() == {"alloc_a": "failed"}
        assert world.exposed == {}


def test_a51_also_a_generation_that_only_failed_keeps_the_older_ones_out() -> None:
    world = World(fails=lambda act: "broken" if isinstance(act, Grant) else None)
    world.take(desired(1, [replace(A, generation=3)]))
    world.settle()
    world.take(desired(2))
    world.settle()

    world.fails = lambda _act: None
    world.take(desired(3, [replace(A, generation=2)]))
    world.settle()

    assert [(status.state, status.reason) for status in world.statuses()] == [("failed", "superseded")]


def test_a52_the_same_order_again_and_again_binds_once() -> None:
    world = bound(A)
    world.acts.clear()

    for time in range(50):
        world.take(desired(1, [A], sent=time))
        world.settle()
        if time % 7 == 0:
            world.kill()

    assert {type(act) for act in world.acts} <= {Verify}
    assert world.told() == {"alloc_a": "bound"}


def test_another_cluster_is_refused_and_a_new_node_id_starts_at_revision_0() -> None:
    state = World(fence=Fence("cluster_1", "node_1", 4, 9)).state

    assert isinstance(machine.joined(state, "cluster_2", "node_1"), str)
    again = machine.joined(state, "cluster_1", "node_2")
    assert isinstance(again, State)
    assert again.fence == Fence("cluster_1", "node_2", 4, 0)


def test_a_new_identity_keeps_what_is_bound_until_its_first_desired_state() -> None:
    world = bound(A)

    joined = machine.joined(world.state, "cluster_1", "node_2")
    assert isinstance(joined, State)
    world.live = joined
    world.settle()
    assert world.told() == {"alloc_a": "bound"}

    world.take(desired(1, node="node_2"))
    world.settle()
    assert world.told() == {}


# --- Overlap and failure


def test_a53_an_overlapping_order_is_blocked_until_the_unbind_is_done() -> None:
    world = bound(A)
    world.fails = lambda act: "device busy" if isinstance(act, Revoke) else None

    world.take(desired(2, [B]))
    world.settle()
    assert world.told() == {"alloc_a": "unbinding", "alloc_b": "blocked"}

    world.fails = lambda _act: None
    world.boot_ms += AFTER_BACKOFF_MS
    world.settle()
    assert world.told() == {"alloc_b": "bound"}


def test_two_orders_for_one_device_never_both_bind() -> None:
    world = World()
    world.take(desired(1, [A, order("alloc_b", "GPU-1 GPU-2")]))

    world.settle()

    assert world.told() == {"alloc_a": "bound", "alloc_b": "blocked"}


@pytest.mark.parametrize(("kind", "state"), [(Save, "binding"), (Grant, "binding"), (Save, "bound"), (Save, "failed")])
def test_l23_a_step_of_the_bind_that_fails_is_undone_and_tried_again(kind: type[Act], state: str) -> None:
    world = World(fails=once(kind, state))
    world.take(desired(1, [A]))

    world.settle()
    if kind is Grant:
        assert world.told() == {"alloc_a": "failed"}
        assert world.exposed == {}
    world.boot_ms += AFTER_BACKOFF_MS
    world.settle()

    assert world.told() == {"alloc_a": "bound"}


def test_a_bind_that_keeps_failing_is_tried_after_1_2_5_10_30_30_seconds() -> None:
    world = World(fails=lambda act: "broken" if isinstance(act, Grant) else None)
    world.take(desired(1, [A]))
    tried: list[int] = []

    for _ in range(90):
        before = len(world.acts)
        world.settle()
        if any(isinstance(act, Grant) for act in world.acts[before:]):
            tried.append(world.boot_ms)
        world.boot_ms += 1_000

    assert [later - sooner for sooner, later in pairwise(tried)] == [
        1_000, 2_000, 5_000, 10_000, 30_000, 30_000,
    ]  # fmt: skip


def test_f26_a_full_disk_keeps_no_device_exposed_and_gives_none_away() -> None:
    world = bound(A)
    world.fails = lambda act: "no space left" if isinstance(act, Save | SaveFence) else None

    world.take(desired(2, [B]))
    world.settle()
    assert world.exposed == {}
    assert world.told() == {"alloc_a": "unbinding", "alloc_b": "blocked"}
    assert world.state.applied_rev == 1

    world.fails = lambda _act: None
    world.boot_ms += AFTER_BACKOFF_MS
    world.settle()
    assert world.told() == {"alloc_b": "bound"}
    assert world.state.applied_rev == 2


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Facts(frozenset({"GPU-0"})), "deviceMissing: GPU-1"),
        (replace(FACTS, holds=(ON_GPU_1,)), "held: xid 48 on GPU-1"),
        (replace(FACTS, holds=(Hold(cause="nvmlDown", since_ms=0, clears_by="nvmlOk"),)), "held: nvmlDown on the node"),
        (replace(FACTS, fabric_domain="c.2"), "fabricDiffers: fabric.domain is c.2, not c.1"),
    ],
)  # fmt: skip
def test_what_speaks_against_a_bind_is_reported_as_its_failure_and_nothing_is_granted(
    facts: Facts, reason: str
) -> None:
    world = World(facts=facts)
    world.take(desired(1, [order(topology_key="fabric.domain", topology_value="c.1")]))

    world.settle()

    (status,) = world.statuses()
    assert (status.state, status.reason) == ("failed", reason)
    assert world.exposed == {}

    world.facts = replace(FACTS, fabric_domain="c.1")
    world.boot_ms += AFTER_BACKOFF_MS
    world.settle()
    assert world.told() == {"alloc_a": "bound"}


def test_an_absent_fabric_label_is_unknown_so_the_bind_waits_and_has_not_failed() -> None:
    world = World(facts=replace(FACTS, fabric_domain=None))
    world.take(desired(1, [order(topology_key="fabric.domain", topology_value="c.1")]))

    world.settle()

    assert world.told() == {"alloc_a": "blocked"}


def test_a_hold_on_another_device_is_no_obstacle_and_one_that_comes_later_keeps_the_tenant() -> None:
    world = World(facts=replace(FACTS, holds=(Hold(device="GPU-3", cause="xid", since_ms=0, clears_by="x"),)))
    world.take(desired(1, [A]))
    world.settle()

    held(world)
    world.boot_ms += 120_000
    world.settle()

    assert world.told() == {"alloc_a": "bound"}


def test_a_hold_that_comes_between_intent_and_grant_stops_the_grant() -> None:
    world = World()
    world.take(desired(1, [A]))
    world.step()
    world.step()
    assert world.told() == {"alloc_a": "binding"}

    world.facts = replace(FACTS, holds=(ON_GPU_1,))
    world.settle()

    assert world.told() == {"alloc_a": "failed"}
    assert not [act for act in world.acts if isinstance(act, Grant)]


def test_an_imex_channel_is_refused_because_this_agent_has_none() -> None:
    world = World()
    world.take(desired(1, [order(imex_channel=5)]))

    world.settle()

    assert world.told() == {"alloc_a": "failed"}


# --- Time


def test_start_late_nothing_is_bound_before_its_start() -> None:
    world = World()
    world.take(desired(1, [order(start_boot_ms=5_000)]))

    world.boot_ms = 4_999
    world.settle()
    assert world.told() == {}

    world.boot_ms = 5_000
    world.settle()
    assert world.told() == {"alloc_a": "bound"}


def test_f05_without_a_coordinator_it_keeps_what_is_bound_and_lets_go_at_the_end_also_after_a_restart() -> None:
    for restarts in (False, True):
        world = bound(order(end_boot_ms=60_000))
        if restarts:
            world.kill()

        world.boot_ms = 59_999
        world.settle()
        assert world.told() == {"alloc_a": "bound"}

        world.boot_ms = 60_000
        world.settle()
        assert world.exposed == {}
        assert "bound" not in world.told().values()


def test_a_grant_that_ended_is_told_as_such_while_the_order_stands() -> None:
    world = bound(order(end_boot_ms=60_000))

    world.boot_ms = 60_000
    world.settle()
    world.take(desired(2, [A]))
    world.settle()

    assert [(status.state, status.reason) for status in world.statuses()] == [("failed", "grantEnded")]
    assert world.exposed == {}


def test_no_back_off_stands_in_the_way_of_an_end() -> None:
    world = bound(order(end_boot_ms=60_000))
    world.fails = lambda act: "full" if isinstance(act, Save) and act.record.state == "bound" else None
    world.boot_ms = 59_000
    world.take(desired(2, [order(end_boot_ms=61_000)]))
    world.settle()

    world.fails = lambda _act: None
    world.boot_ms = 61_000
    world.take(desired(3, [order(end_boot_ms=60_500)]))
    world.settle()

    assert world.exposed == {}


def test_an_extension_holds_also_where_it_cannot_be_written() -> None:
    world = bound(order(end_boot_ms=60_000))
    world.fails = lambda act: "full" if isinstance(act, Save) and act.record.state == "bound" else None
    world.take(desired(2, [order(end_boot_ms=90_000)]))
    world.settle()

    world.boot_ms = 60_000
    world.settle()

    assert world.told() == {"alloc_a": "bound"}


def test_a_rolling_grant_is_renewed_by_the_same_revision() -> None:
    world = bound(order(end_boot_ms=300_000))

    world.boot_ms = 200_000
    world.take(desired(1, [order(end_boot_ms=500_000)], sent=200_000))
    world.settle()
    world.kill()
    world.boot_ms = 400_000
    world.settle()

    assert world.told() == {"alloc_a": "bound"}


def test_a_window_that_was_extended_is_told_to_the_tenant_also_where_the_grant_stays() -> None:
    world = bound(A)

    world.take(desired(2, [replace(A, end_unix_ms=A.end_unix_ms + HOUR_MS)]))
    world.settle()

    assert world.exposed["alloc_a"].end_unix_ms == A.end_unix_ms + HOUR_MS


def test_the_jitter_of_round_trips_writes_nothing() -> None:
    world = bound(A)
    world.acts.clear()

    for jitter in range(10):
        world.take(desired(1, [order(end_boot_ms=12 * HOUR_MS - jitter * 99, end_unix_ms=A.end_unix_ms)], sent=jitter))
        world.settle()

    assert world.acts == []


def test_l33_a_grant_that_vanished_is_found_within_a_minute_and_made_again() -> None:
    world = bound(A)
    world.exposed.clear()

    world.boot_ms += 60_000
    world.settle()

    assert world.exposed.keys() == {"alloc_a"}


# --- What is told


def test_the_revision_counts_as_applied_once_whatever_it_dropped_is_at_least_unbinding() -> None:
    world = bound(A)
    world.take(desired(2))

    seen: list[tuple[int, dict[str, str]]] = [(world.state.applied_rev, world.told())]
    while world.step():
        seen.append((world.state.applied_rev, world.told()))

    assert seen == [
        (1, {"alloc_a": "bound"}),
        (1, {"alloc_a": "bound"}),  # the fence is saved
        (2, {"alloc_a": "unbinding"}),
        (2, {"alloc_a": "unbinding"}),  # revoked, not yet written
        (2, {}),
    ]


def test_a_node_that_lost_a_record_promises_nothing_and_binds_nothing() -> None:
    world = World()
    world.live = replace(world.state, complete=False)
    world.take(desired(4, [A]))

    world.settle()

    assert world.state.applied_rev == 0
    assert world.told() == {"alloc_a": "failed"}
    assert world.exposed == {}


def test_a_bind_that_a_crash_cut_short_is_not_told_as_failed() -> None:
    world = World()
    world.take(desired(1, [A]))
    for _ in range(3):
        world.step()
    world.kill()

    told = []
    while world.step():
        told.append(world.told())

    assert told
    assert all(states == {"alloc_a": "binding"} for states in told)


def test_tombstones_are_kept_for_a_day_and_longer_while_they_are_named() -> None:
    world = bound(A)
    world.take(desired(2))
    world.settle()

    world.boot_ms += 24 * HOUR_MS - 1
    world.settle()
    assert world.records.keys() == {"alloc_a"}
    world.take(desired(3, [A]))
    world.boot_ms += 1
    world.settle()
    assert world.told() == {"alloc_a": "failed"}
    world.take(desired(4))
    world.settle()
    assert world.records == {}


def test_the_age_of_a_tombstone_of_another_boot_is_counted_from_this_boot() -> None:
    world = World(boot_ms=100 * HOUR_MS)
    world.take(desired(1, [order(end_boot_ms=200 * HOUR_MS)]))
    world.settle()
    world.take(desired(2))
    world.settle()

    world.reboot("boot-2")
    world.boot_ms = 24 * HOUR_MS - 1
    world.settle()
    assert world.records.keys() == {"alloc_a"}
    world.boot_ms += 1
    world.settle()
    assert world.records == {}
