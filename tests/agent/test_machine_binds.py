from dataclasses import replace
from itertools import pairwise

import pytest

from muster_agent.core.beginning import due
from muster_agent.core.records import Act, Facts, Grant, Look, Revoke, Save, SaveFence
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
    once,
    order,
)

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

    world.facts = replace(FACTS, holds=(ON_GPU_1,))
    world.boot_ms += 120_000
    world.settle()

    assert world.told() == {"alloc_a": "bound"}


def test_a_hold_that_comes_between_intent_and_grant_stops_the_grant() -> None:
    world = World()
    world.take(desired(1, [A]))
    while world.told() != {"alloc_a": "binding"}:
        world.step()

    world.facts = replace(FACTS, holds=(ON_GPU_1,))
    world.settle()

    assert world.told() == {"alloc_a": "failed"}
    assert not [act for act in world.acts if isinstance(act, Grant)]


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
    world.acts.clear()

    world.take(desired(2, [replace(A, end_unix_ms=A.end_unix_ms + HOUR_MS)]))
    world.settle()

    assert [type(act) for act in world.acts] == [SaveFence, Save, Grant]
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


def test_nothing_is_bound_under_a_fence_that_is_not_on_disk() -> None:
    world = World(fails=lambda act: "full" if isinstance(act, SaveFence) else None)
    world.take(desired(1, [A]))

    world.settle()

    assert world.records == {}


def test_an_order_whose_grant_is_over_leaves_no_trace() -> None:
    world = World()
    world.take(desired(1, [order(end_boot_ms=world.boot_ms)]))

    world.settle()

    assert world.records == {}


def test_no_record_of_a_newer_generation_makes_way_for_an_older_order() -> None:
    newer = bound(replace(A, generation=3)).records["alloc_a"]

    for state in ("binding", "bound", "unbinding", "failed", "released"):
        assert not due(replace(A, generation=2), replace(newer, state=state), boot_ms=1_000)


def test_f26_an_intent_that_cannot_be_written_is_tried_with_back_off_and_told() -> None:
    world = World(fails=lambda act: "no space left" if isinstance(act, Save) else None)
    world.take(desired(1, [A]))

    world.settle()
    world.settle()

    assert [type(act) for act in world.acts] == [SaveFence, Look, Save]
    assert [(status.state, status.reason) for status in world.statuses()] == [("blocked", "no space left")]


def test_a_grant_that_cannot_be_mended_stays_bound_says_why_and_is_tried_with_back_off() -> None:
    world = bound(A)
    world.exposed.clear()
    world.fails = lambda act: "read-only" if isinstance(act, Grant) else None
    world.boot_ms += 60_000

    world.settle()
    world.settle()

    assert [(status.state, status.reason) for status in world.statuses()] == [("bound", "read-only")]
    assert sum(isinstance(act, Grant) for act in world.acts) == 2

    world.fails = lambda _act: None
    world.boot_ms += AFTER_BACKOFF_MS
    world.settle()
    assert world.exposed.keys() == {"alloc_a"}
    assert [status.reason for status in world.statuses()] == [None]


def test_an_unbind_that_fails_is_tried_after_1_2_5_10_30_30_seconds_and_says_why() -> None:
    world = bound(A)
    world.fails = lambda act: "busy" if isinstance(act, Revoke) else None
    world.take(desired(2))
    tried: list[int] = []

    for _ in range(90):
        before = len(world.acts)
        world.settle()
        if any(isinstance(act, Revoke) for act in world.acts[before:]):
            tried.append(world.boot_ms)
        world.boot_ms += 1_000

    assert [later - sooner for sooner, later in pairwise(tried)] == [1_000, 2_000, 5_000, 10_000, 30_000, 30_000]
    assert [(status.state, status.reason) for status in world.statuses()] == [("unbinding", "busy")]
