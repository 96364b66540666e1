from dataclasses import replace

from muster_agent.core import machine
from muster_agent.core.desired import Fence
from muster_agent.core.records import Facts, Grant, State, Verify
from tests.support.agent_world import (
    FACTS,
    HOUR_MS,
    A,
    World,
    bound,
    desired,
    order,
)

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
    while "alloc_a" not in world.records:
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
        (2, {"alloc_a": "unbinding"}),  # revoked
        (2, {"alloc_a": "unbinding"}),  # and empty, not yet written
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


def test_a_back_off_of_another_boots_clock_delays_nothing() -> None:
    world = World(boot_ms=100 * HOUR_MS, fails=lambda act: "broken" if isinstance(act, Grant) else None)
    world.take(desired(1, [order(end_boot_ms=200 * HOUR_MS)]))
    world.settle()
    assert world.told() == {"alloc_a": "failed"}

    world.fails = lambda _act: None
    world.reboot("boot-2")
    world.take(desired(1, [A]))
    world.settle()

    assert world.told() == {"alloc_a": "bound"}


def test_a_tombstone_that_was_made_after_a_reboot_is_kept_for_a_day_from_then() -> None:
    world = bound(A)
    world.reboot("boot-2")
    world.boot_ms = 10 * HOUR_MS
    world.take(desired(2))
    world.settle()

    world.boot_ms = 34 * HOUR_MS - 1
    world.settle()
    assert world.records.keys() == {"alloc_a"}


def test_an_order_that_is_about_to_fail_is_not_told_as_blocked_first() -> None:
    world = World(facts=Facts(frozenset()))

    world.take(desired(1, [A]))

    assert world.told() == {}
