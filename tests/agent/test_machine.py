from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from muster_agent.core import machine
from muster_agent.core.desired import Desired
from muster_agent.core.records import Act, Facts, Instance, Save
from muster_shared.wire import Hold
from tests.support.agent_world import (
    AFTER_BACKOFF_MS,
    FACTS,
    HOUR_MS,
    ON_GPU_1,
    A,
    B,
    World,
    bound,
    desired,
    order,
)


def names(acts: list[Act]) -> list[str]:
    return [f"{type(act).__name__} {act.record.state}" if isinstance(act, Save) else type(act).__name__ for act in acts]


# --- The order of acts


def test_intent_is_on_disk_before_a_tenant_gets_near_a_device_and_the_fence_before_both() -> None:
    world = bound(A)

    assert names(world.acts) == ["SaveFence", "Look", "Save binding", "Grant", "Save bound"]


def test_an_unbind_is_written_first_then_done_then_written_as_done() -> None:
    world = bound(A)
    world.acts.clear()

    world.take(desired(2))
    world.settle()

    assert names(world.acts) == ["SaveFence", "Save unbinding", "Revoke", "Evict", "Save released"]
    assert world.told() == {}
    assert world.exposed == {}


def test_unbinds_go_before_binds() -> None:
    world = bound(A)
    world.acts.clear()

    world.take(desired(2, [B]))
    world.settle()

    assert names(world.acts)[1:5] == ["Save unbinding", "Revoke", "Evict", "Save released"]
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


def stubborn(world: World) -> None:
    world.stubborn.add("alloc_a")


def foreign(*devices: str) -> Callable[[World], None]:
    def step(world: World) -> None:
        world.foreign = set(devices)

    return step


def to_be_reset(world: World) -> None:
    world.facts = replace(FACTS, holds=(ON_GPU_1.model_copy(update={"clears_by": "gpuResetVerified"}),))


def split(world: World) -> None:
    """GPU-3 has been split into two instances."""
    halves = tuple(Instance(f"MIG-{half}", "GPU-3", gpu_instance=half, compute_instance=0) for half in (1, 2))
    world.facts = replace(FACTS, devices=FACTS.devices - {"GPU-3"} | {"MIG-1", "MIG-2"}, instances=halves)


SHARED, OTHER = (order(f"alloc_{name}", "GPU-2", shared=("GPU-2",)) for name in "ab")
MIG_1, MIG_2 = (order(f"alloc_{name}", f"MIG-{half}") for name, half in (("a", 1), ("b", 2)))
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
    # A process that was killed gives the grace anew: whom it has told to end, it cannot know.
    "stubborn tenant": [stubborn, desired(1, [A]), desired(2), *(later(A.kill_grace_ms) for _ in range(3))],
    "somebody else computes there": [foreign("GPU-1"), desired(1, [A]), foreign(), later(AFTER_BACKOFF_MS)],
    "preempted": [desired(1, [A]), desired(2, [replace(A, preempt_boot_ms=31_000)]), later(30_000), desired(3)],
    "a hold asks for a reset": [desired(1, [A]), to_be_reset, desired(2)],
    "shared": [desired(1, [SHARED, OTHER]), desired(2, [OTHER]), desired(3)],
    "instances": [split, desired(1, [MIG_1, MIG_2]), desired(2, [MIG_2]), desired(3)],
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
    holding = sorted(world.holding)
    return records, exposed, holding, world.told(), world.fence, world.state.applied_rev, set(world.resets)


@pytest.mark.parametrize("name", SCRIPTS)
def test_killed_at_any_two_acts_and_started_again_it_ends_the_same(name: str) -> None:
    script = SCRIPTS[name]
    calm, acts = play(script, {})
    moments = [(number, how) for number in range(1, acts + 4) for how in ("before", "after")]

    for first, second in product(moments, moments):
        if first[0] <= second[0]:
            cut, _ = play(script, dict([first, second]))
            assert outcome(cut) == outcome(calm), (first, second)
