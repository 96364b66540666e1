"""What the machine does about processes on devices: before a bind, after an unbind, and in the places between."""

from dataclasses import replace
from itertools import pairwise

import pytest

from muster_agent.core.machine import take
from muster_agent.core.outcomes import EVICT_EVERY_MS, after
from muster_agent.core.records import Evict, Grant, Instance, Look, Outcome, Reset, State, Verify, Warn
from muster_shared.wire import Hold
from tests.support.agent_world import AFTER_BACKOFF_MS, FACTS, ON_GPU_1, A, B, World, bound, desired, once, order

MIG = replace(
    FACTS,
    devices=frozenset({"GPU-0", "GPU-1", "GPU-2", "MIG-a", "MIG-b"}),
    instances=(Instance("MIG-a", "GPU-3", 1, 0), Instance("MIG-b", "GPU-3", 2, 0)),
)


def reasons(world: World) -> list[tuple[str, str | None]]:
    return [(status.state, status.reason) for status in world.statuses()]


# --- Before a bind


def test_a_process_that_nobody_let_in_fails_the_bind_and_is_not_ended() -> None:
    world = World(foreign={"GPU-1"})
    world.take(desired(1, [A]))

    world.settle()

    assert reasons(world) == [("failed", "foreignProcess: on GPU-1")]
    assert not [act for act in world.acts if isinstance(act, Evict | Grant)]

    world.foreign.clear()
    world.boot_ms += AFTER_BACKOFF_MS
    world.settle()
    assert world.told() == {"alloc_a": "bound"}


def test_a_look_that_has_grown_old_is_taken_again() -> None:
    world = World(fails=once(Look))  # the first look finds somebody
    world.take(desired(1, [A]))
    world.step()
    world.step()

    world.boot_ms += 2_001
    world.settle()

    assert sum(isinstance(act, Look) for act in world.acts) == 2
    assert world.told() == {"alloc_a": "bound"}


def test_nvml_is_asked_who_computes_on_devices_that_nobody_shares() -> None:
    facts = replace(FACTS, pids={"GPU-0": (7,), "GPU-2": (8,)}, read_boot_ms=900)
    world = World(facts=facts)
    world.take(desired(1, [order("alloc_a", "GPU-2", shared=("GPU-2",))]))
    world.settle()
    world.take(
        desired(2, [order("alloc_a", "GPU-2", shared=("GPU-2",)), order("alloc_b", "GPU-0 GPU-2", shared=("GPU-2",))])
    )
    world.settle()

    looks = [act for act in world.acts if isinstance(act, Look)]
    assert [(look.devices, look.pids, look.pids_boot_ms) for look in looks] == [
        (("GPU-2",), (8,), 900),
        (("GPU-0",), (7,), 900),
    ]


# --- After an unbind


def test_a55_what_does_not_end_is_told_with_its_pids_and_keeps_the_device_from_everybody() -> None:
    world = bound(A)
    world.stubborn.add("alloc_a")
    world.fails = lambda act: "releaseBlocked: pid 7" if isinstance(act, Evict) and act.force else None

    world.take(desired(2, [B]))
    for _ in range(30):
        world.settle()
        world.boot_ms += 1_000

    assert reasons(world) == [
        ("unbinding", "releaseBlocked: pid 7"),
        ("blocked", "overlap: a device is still with alloc_a"),
    ]
    assert len([act for act in world.acts if isinstance(act, Evict) and act.force]) > 1, "it keeps trying"

    world.fails = lambda _act: None
    world.boot_ms += AFTER_BACKOFF_MS
    world.settle()
    assert world.told() == {"alloc_b": "bound"}


def test_term_comes_first_and_kill_when_the_grace_that_was_told_is_over() -> None:
    world = bound(replace(A, kill_grace_ms=3_000))
    world.stubborn.add("alloc_a")
    world.take(desired(2))
    began_ms = world.boot_ms

    seen: list[tuple[int, bool]] = []
    for _ in range(5):
        before = len(world.acts)
        world.settle()
        seen += [(world.boot_ms - began_ms, act.force) for act in world.acts[before:] if isinstance(act, Evict)]
        world.boot_ms += EVICT_EVERY_MS

    assert seen == [(0, False), (1_000, False), (2_000, False), (3_000, True)]
    assert world.told() == {}


def test_after_kill_it_is_tried_with_back_off_because_what_stays_now_stays_long() -> None:
    world = bound(replace(A, kill_grace_ms=0))
    world.fails = lambda act: "releaseBlocked: pid 7" if isinstance(act, Evict) else None
    world.take(desired(2))
    forced: list[int] = []

    for _ in range(60):
        before = len(world.acts)
        world.settle()
        forced += [world.boot_ms for act in world.acts[before:] if isinstance(act, Evict) and act.force]
        world.boot_ms += 1_000

    assert [later - sooner for sooner, later in pairwise(forced)] == [1_000, 2_000, 5_000, 10_000, 30_000]


def test_a_bind_that_failed_half_way_is_emptied_too() -> None:
    world = World(fails=once(Grant))
    world.take(desired(1, [A]))
    world.settle()

    assert [type(act).__name__ for act in world.acts][-4:] == ["Grant", "Revoke", "Evict", "Save"]


def test_after_a_reboot_nobody_is_ended_because_whoever_is_there_came_after() -> None:
    world = bound(A)
    world.reboot("boot-2")

    world.settle()
    world.take(desired(2))
    world.settle()

    assert world.told() == {}
    assert not [act for act in world.acts if isinstance(act, Evict)]


# --- Shares and instances


def test_two_shares_of_a_gpu_are_bound_beside_each_other_and_a_whole_one_waits() -> None:
    world = World()
    world.take(
        desired(
            1,
            [
                order("alloc_a", "GPU-0", shared=("GPU-0",)),
                order("alloc_b", "GPU-0", shared=("GPU-0",)),
                order("alloc_c", "GPU-0"),
            ],
        )
    )

    world.settle()

    assert world.told() == {"alloc_a": "bound", "alloc_b": "bound", "alloc_c": "blocked"}


def test_processes_on_a_gpu_that_others_share_are_ended_with_the_last_share_only() -> None:
    shares = [order(f"alloc_{name}", "GPU-0", shared=("GPU-0",)) for name in "ab"]
    world = bound(*shares)

    world.take(desired(2, shares[1:]))
    world.settle()
    world.take(desired(3))
    world.settle()

    evicts = [act for act in world.acts if isinstance(act, Evict)]
    assert [(act.record.allocation_id, act.devices) for act in evicts] == [("alloc_a", ()), ("alloc_b", ("GPU-0",))]


def test_instances_of_one_gpu_are_two_devices_and_their_places_are_written_down() -> None:
    world = World(facts=MIG)
    world.take(desired(1, [order("alloc_a", "MIG-a"), order("alloc_b", "MIG-b")]))

    world.settle()

    assert world.told() == {"alloc_a": "bound", "alloc_b": "bound"}
    assert world.records["alloc_b"].instances == (Instance("MIG-b", "GPU-3", 2, 0),)
    assert world.records["alloc_b"].gpus == ("GPU-3",)


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ("GPU-3", "migLayout: GPU-3 is in MIG mode, and was asked for whole"),
        ("MIG-gone", "migLayout: MIG-gone is not there"),
    ],
)
def test_another_mig_layout_than_asked_fails_the_bind(devices: str, reason: str) -> None:
    world = World(facts=MIG)
    world.take(desired(1, [order("alloc_a", devices)]))

    world.settle()

    assert reasons(world) == [("failed", reason)]


def test_a_hold_on_a_gpu_holds_its_instances() -> None:
    hold = Hold(device="GPU-3", cause="xid", code=79, since_ms=0, clears_by="operator")
    world = World(facts=replace(MIG, holds=(hold,)))
    world.take(desired(1, [order("alloc_a", "MIG-a")]))

    world.settle()

    assert reasons(world) == [("failed", "held: xid 79 on GPU-3")]


def test_a54_a_bound_instance_that_was_destroyed_is_told_by_name() -> None:
    world = World(facts=MIG)
    world.take(desired(1, [order("alloc_a", "MIG-a")]))
    world.settle()

    world.facts = replace(MIG, devices=MIG.devices - {"MIG-a"}, instances=MIG.instances[1:])

    assert reasons(world) == [("bound", "deviceMissing: MIG-a")]


# --- IMEX


def test_a55_a_second_gang_on_the_hosts_imex_daemon_is_refused_and_members_of_one_gang_are_not() -> None:
    world = bound(order("alloc_a", "GPU-0", imex_channel=1))

    world.take(desired(2, [order("alloc_a", "GPU-0", imex_channel=1), order("alloc_b", "GPU-1", imex_channel=2)]))
    world.settle()
    assert reasons(world)[1] == ("failed", "imexBusy: the host's IMEX daemon serves alloc_a")

    same = order("alloc_c", "GPU-2", imex_channel=1, reservation_id="rsv_a")
    world.take(desired(3, [order("alloc_a", "GPU-0", imex_channel=1), same]))
    world.settle()
    assert world.told() == {"alloc_a": "bound", "alloc_c": "bound"}


# --- Notice and reset


def test_preempt_hooks_run_once_at_notice_and_not_again_after_a_restart() -> None:
    world = bound(A)
    for rev in (2, 3):
        world.take(desired(rev, [replace(A, preempt_boot_ms=31_000)]))
        world.settle()
        world.kill()
        world.take(desired(rev, [replace(A, preempt_boot_ms=31_000)]))
        world.settle()

    assert world.warned == ["alloc_a"]
    assert world.told() == {"alloc_a": "bound"}


def test_a_preempt_hook_that_fails_is_not_run_again_and_fails_nothing() -> None:
    world = bound(A)
    world.fails = lambda act: "exit status 1" if isinstance(act, Warn) else None

    world.take(desired(2, [replace(A, preempt_boot_ms=31_000)]))
    world.settle()

    assert sum(isinstance(act, Warn) for act in world.acts) == 1
    assert reasons(world) == [("bound", None)]


def reset_asked(world: World) -> None:
    world.facts = replace(FACTS, holds=(ON_GPU_1.model_copy(update={"clears_by": "gpuResetVerified"}),))


def test_an_empty_gpu_is_reset_where_a_hold_asks_for_it_and_only_then() -> None:
    world = bound(A)
    reset_asked(world)
    world.settle()
    assert world.resets == []

    world.take(desired(2))
    world.settle()
    assert world.resets == ["GPU-1"]

    for holds in ((), (ON_GPU_1,)):  # none, and one that an operator ends
        other = bound(A)
        other.facts = replace(FACTS, holds=holds)
        other.take(desired(2))
        other.settle()
        assert other.resets == []


def test_a_reset_that_fails_is_not_repeated_and_the_devices_are_released_to_their_hold() -> None:
    world = bound(A)
    reset_asked(world)
    world.fails = lambda act: "in use" if isinstance(act, Reset) else None

    world.take(desired(2))
    world.settle()

    assert sum(isinstance(act, Reset) for act in world.acts) == 1
    assert world.told() == {}


def test_a_gpu_on_which_somebody_else_is_is_not_reset() -> None:
    shares = [order(f"alloc_{name}", "GPU-1", shared=("GPU-1",)) for name in "ab"]
    world = bound(*shares)
    reset_asked(world)

    world.take(desired(2, shares[1:]))
    world.settle()

    assert world.resets == []


def test_the_guard_is_told_as_armed_while_the_last_look_saw_it_so() -> None:
    world = bound(A)
    for act in (Verify(world.records["alloc_a"]), Grant(world.records["alloc_a"])):
        for armed in (False, True):
            world.live = after(world.state, act, Outcome(world.boot_ms, guard_armed=armed))
            assert [status.guard_armed for status in world.statuses()] == [armed]

    taken = take(world.state, desired(2))
    assert isinstance(taken, State)
    world.live = taken
    world.fails = lambda act: "busy" if isinstance(act, Evict) else None
    world.settle()
    assert [(status.state, status.guard_armed) for status in world.statuses()] == [("unbinding", True)]

    world.kill()
    assert [status.guard_armed for status in world.statuses()] == [False], "what was not looked at is not promised"
