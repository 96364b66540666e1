"""The machine under any history: orders that overlap or repeat, faults of disk and drivers, kills, reboots, time."""

from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster_agent.core import machine
from muster_agent.core.desired import Desired
from muster_agent.core.outcomes import after
from muster_agent.core.records import Act, Facts, Grant, Outcome
from muster_shared.wire import Hold
from tests.support.agent_world import FACTS, World, desired, order

HELD = Facts(FACTS.devices, (Hold(cause="nvmlDown", since_ms=0, clears_by="nvmlOk"),))
DEVICES = ("GPU-0", "GPU-0 GPU-1", "GPU-1 GPU-2", "GPU-3", "GPU-9")

orders = st.lists(
    st.tuples(
        st.sampled_from(["alloc_a", "alloc_b", "alloc_c"]),
        st.sampled_from(DEVICES),
        st.integers(1, 4),  # generation
        st.integers(-5_000, 20_000),  # remaining start
        st.integers(1_000, 90_000),  # remaining grant
    ),
    max_size=3,
    unique_by=lambda item: item[0],
)
events = st.one_of(
    st.tuples(st.just("desired"), orders),
    st.tuples(st.just("older"), orders),
    st.tuples(st.just("acts"), st.integers(1, 6)),
    st.tuples(st.just("time"), st.sampled_from([500, 3_000, 40_000, 100_000])),
    st.tuples(st.just("fault"), st.sampled_from(["none", "refused", "done, but not told"])),
    st.tuples(st.just("facts"), st.sampled_from([None, FACTS, HELD])),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("reboot"), st.booleans()),
)


class History:
    def __init__(self) -> None:
        self.world = World()
        self.rev = 0
        self.boots = 1
        self.fault = "none"
        self.newest: defaultdict[str, int] = defaultdict(int)  # generation by allocation id
        self.wanted: Desired | None = None

    def happen(self, kind: str, what: Any) -> None:
        world = self.world
        match kind:
            case "desired":
                self.rev += 1
                self.wanted = self.told(what, self.rev)
                assert world.take(self.wanted) is None
            case "older" if world.fence.rev > 1:
                assert world.take(self.told(what, world.fence.rev - 1)) is not None
            case "acts":
                for _ in range(what):
                    self.act()
            case "time":
                world.boot_ms += what
            case "fault":
                self.fault = what
            case "facts":
                world.facts = what
            case "kill":
                world.kill()
            case "reboot":
                self.boots += 1
                world.reboot(f"boot-{self.boots}", artefacts_stay=what)

    def told(self, items: list[tuple[str, str, int, int, int]], rev: int) -> Desired:
        now = self.world.boot_ms
        return desired(
            rev,
            [
                order(name, devices, generation=generation, start_boot_ms=now + start, end_boot_ms=now + grant)
                for name, devices, generation, start, grant in items
            ],
            sent=now,
        )

    def act(self) -> None:
        world = self.world
        act = machine.next_act(world.state, world.facts, world.boot_ms)
        if act is None:
            return
        self.judge(act)
        if self.fault != "refused":
            world.perform(act)
        world.live = after(world.state, act, Outcome(world.boot_ms, None if self.fault == "none" else self.fault))
        world.check()

    def judge(self, act: Act) -> None:
        if not isinstance(act, Grant):
            return
        record, world = act.record, self.world
        assert record.devices, "no device is not a grant"
        assert record.generation >= self.newest[record.allocation_id], "an old generation was bound"
        self.newest[record.allocation_id] = record.generation
        wanted = world.state.order_for(record)
        if record.state == "binding":
            assert wanted, "bound without an order of this process's life"
            assert wanted.start_boot_ms <= world.boot_ms < wanted.end_boot_ms, "bound outside the window"
            assert world.facts == FACTS, "bound without a look, or in spite of a hold"
        assert world.boot_ms < (wanted or record).end_boot_ms, "granted past its end"


@settings(max_examples=250, deadline=None)
@given(st.lists(events, max_size=40))
def test_no_device_is_exposed_twice_or_unreported_or_out_of_turn_and_whatever_is_dropped_is_released(
    history: list[tuple[str, Any]],
) -> None:
    play = History()

    for kind, what in history:
        play.happen(kind, what)

    world = play.world
    play.fault, world.facts = "none", FACTS
    play.happen("desired", [])
    for _ in range(6):
        world.boot_ms += 30_000
        world.settle()
    assert world.exposed == {}
    assert world.told() == {}
    assert world.state.applied_rev == play.rev


@settings(max_examples=100, deadline=None)
@given(st.lists(events, max_size=25), st.sampled_from(DEVICES[:4]))
def test_whatever_happened_before_an_order_of_a_new_allocation_is_bound_once_the_faults_are_over(
    history: list[tuple[str, Any]], devices: str
) -> None:
    play = History()
    for kind, what in history:
        play.happen(kind, what)

    world = play.world
    play.fault, world.facts = "none", FACTS
    play.rev += 1
    now = world.boot_ms
    world.take(desired(play.rev, [order("alloc_new", devices, end_boot_ms=now + 10**9)], sent=now))
    for _ in range(6):
        world.boot_ms += 30_000
        world.settle()

    assert world.told() == {"alloc_new": "bound"}
