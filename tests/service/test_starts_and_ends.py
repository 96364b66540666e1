"""Starts and ends: who waits for whom, and what happens when a member does not answer."""

import pytest

from muster_coordinator.service.nodes import operate
from muster_shared.errors import Code, Problem
from tests.support.service_world import HOUR, MINUTE, SECOND, World, asks, end_of


async def test_a_start_waits_for_the_previous_unbind_and_is_never_an_error(world: World) -> None:
    """R01, LP 1785841: two bookings that touch; the release takes 20 s."""
    node = await world.join("a1")
    first = await world.reserve(asks())
    second = await world.reserve(asks(start=first.end))
    await world.settle()
    node.lets_go = False

    await world.until(end_of(first))
    assert (await world.state(first.id), await world.state(second.id)) == ("ending", "binding")
    assert await world.binds(second.id) == {"a1": "reserved"}
    await world.wait(20 * SECOND)
    assert await world.binds(second.id) == {"a1": "reserved"}
    node.lets_go = True
    await world.settle()

    assert (await world.state(first.id), await world.state(second.id)) == ("ended", "active")
    assert await world.story(second.id) == ["created", "placed", "binding", "active"]


async def test_created_for_now_while_the_pass_runs_each_becomes_active(world: World) -> None:
    """R02, LP 1704359, 1820476: reservation, allocations and due time appear in one commit."""
    await world.join_all("a1 a2")
    ids = []
    for _ in range(8):
        ids.append((await world.reserve(asks(gpus=1, start="now"))).id)
        await world.coordinator.passes.run_once()
    await world.settle()

    assert {await world.state(one) for one in ids} == {"active"}


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_cancel_during_the_start_leaves_one_end_and_nothing_bound(world: World, turns: int) -> None:
    """LP 1791741: the answer of the bind crosses the cancel."""
    first, second = await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2))
    for agent in (first, second)[:turns]:
        await agent.turn()
    await second.fetch()
    late = second.next_report()

    await world.coordinator.cancel(gang.id)
    await world.coordinator.take_report(second.node_id, late)
    await world.settle()

    assert (await world.get(gang.id)).reason == "Cancelled"
    assert (await world.story(gang.id)).count("ended") == 1
    assert (first.has, second.has) == ({}, {})
    assert (await world.reserve(asks(2))).state == "binding"


async def test_a_member_that_is_already_gone_is_released_like_the_others(world: World) -> None:
    """LP 1786073, 1791721: one of four knows nothing of what it shall let go."""
    agents = await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    gang = await world.reserve(asks(4))
    await world.settle()
    agents[2].has.clear()
    await world.coordinator.release(gang.id)

    await world.settle()

    assert (await world.get(gang.id)).reason == "Released"
    assert (await world.reserve(asks(4))).state == "binding"


async def test_a_member_that_refuses_to_bind_is_swapped_at_the_deadline(world: World) -> None:
    """R08, LP 1791733, 1847821: four bound, or none, and nothing kept by the one that refused."""
    await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    gang = await world.reserve(asks(4))
    await world.join("a5", fabric="fabric-a.1")
    world.agents["a3"].refusal = ("failed", "foreignProcess")
    await world.settle()
    assert (await world.state(gang.id), await world.binds(gang.id)) == (
        "binding",
        {"a1": "bound", "a2": "bound", "a3": "binding", "a4": "bound"},
    )

    await world.wait(120 * SECOND)

    swapped = await world.get(gang.id)
    assert (swapped.state, await world.nodes_of(gang.id)) == ("active", "a1 a2 a4 a5")
    assert world.agents["a3"].has == {}
    assert (await world.reserve(asks(same=None))).members[0].node_name == "a3"


async def test_without_a_spare_a_failed_bind_frees_every_member_and_says_so(world: World) -> None:
    """R08: no host of a gang that did not come together is kept."""
    agents = await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    agents[1].refusal = ("failed", "foreignProcess")
    gang = await world.reserve(asks(4))
    await world.settle()

    world.clock.ms += 120 * SECOND
    await world.beat()
    undone = await world.get(gang.id)
    for agent in agents:
        await agent.turn()

    assert (undone.state, undone.members) == ("pending", [])
    assert undone.condition is not None
    assert undone.condition.reason == "BookingRepairFailed"
    assert [agent.has for agent in agents] == [{}, {}, {}, {}]
    agents[1].refusal = None
    await world.settle()
    assert await world.state(gang.id) == "active"


async def test_an_occupied_node_sends_the_whole_gang_to_the_other_fabric(world: World) -> None:
    """dstack 4146: nobody keeps a host of a gang that did not come together."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await world.join_all("b1 b2", fabric="fabric-b.1")
    gang = await world.reserve(asks(2))
    taken = (await world.nodes_of(gang.id)).split()
    world.agents[taken[1]].refusal = ("blocked", "foreignProcess")
    await world.settle()
    told = next(one for one in (await world.get(gang.id)).members if one.node_name == taken[1])
    assert told.bind_reason == "foreignProcess"

    await world.wait(120 * SECOND)

    assert await world.state(gang.id) == "active"
    assert not set(taken) & set((await world.nodes_of(gang.id)).split())
    assert [world.agents[name].has for name in taken] == [{}, {}]


async def test_a_member_that_never_confirms_is_swapped_for_the_rest_of_the_window(world: World) -> None:
    """kueue 9615: it took the order; the end stays, and nothing is billed meanwhile."""
    silent, *_ = await world.join_all("a1 a2", fabric="fabric-a.1")
    silent.confirms = False
    gang = await world.reserve(asks(2))
    await world.join("a3", fabric="fabric-a.1")
    await world.settle()
    await world.wait(119 * SECOND)
    waiting = await world.get(gang.id)
    assert (waiting.state, waiting.activated) == ("binding", None)

    await world.wait(1 * SECOND)

    swapped = await world.get(gang.id)
    assert (swapped.state, await world.nodes_of(gang.id)) == ("active", "a2 a3")
    assert (swapped.start, swapped.end, swapped.activated) == (gang.start, gang.end, world.now_ms)
    assert (await world.told(gang.id, "reservation.repaired"))[0]["from"] == [silent.node_id]


async def test_waiting_for_an_unbind_that_never_comes_is_bounded_too(world: World) -> None:
    stuck = await world.join("a1")
    first = await world.reserve(asks())
    second = await world.reserve(asks(start=first.end))
    await world.settle()
    stuck.lets_go = False
    await world.until(end_of(first))
    await world.join("a2")
    await world.wait(299 * SECOND)
    assert await world.nodes_of(second.id) == "a1"

    await world.wait(1 * SECOND)

    assert (await world.state(second.id), await world.nodes_of(second.id)) == ("active", "a2")


async def test_two_stuck_fabrics_do_not_stop_the_background_pass(world: World) -> None:
    """Neither pair lets go of what it was told, so there is nowhere to go: the gang keeps waiting, bounded."""
    for name, fabric in (("a1", "fabric-a.1"), ("a2", "fabric-a.1"), ("b1", "fabric-b.1"), ("b2", "fabric-b.1")):
        agent = await world.join(name, fabric=fabric)
        agent.confirms = agent.lets_go = False
    gang = await world.reserve(asks(2))

    for _ in range(6):
        await world.wait(120 * SECOND)

    assert await world.state(gang.id) in {"binding", "pending"}
    for agent in world.agents.values():
        agent.confirms = agent.lets_go = True
    for _ in range(3):
        await world.wait(120 * SECOND)
    assert await world.state(gang.id) == "active"


async def test_an_unbind_keeps_its_atoms_from_everybody(world: World) -> None:
    """R25, openpbs 791, 861: occupied until it is confirmed."""
    node = await world.join("a1")
    first = await world.reserve(asks(gpus=6))
    await world.settle()
    node.lets_go = False
    await world.coordinator.cancel(first.id)
    await world.settle()

    small = await world.reserve(asks(gpus=2))
    large = await world.reserve(asks(gpus=3))

    assert (small.state, large.state) == ("binding", "pending")
    assert not set(small.members[0].devices) & set(next(iter(node.has.values()))[0].devices)
    node.lets_go = True
    await world.settle()
    assert await world.state(large.id) == "active"


async def test_a_gang_without_room_for_all_starts_for_none(world: World) -> None:
    """kueue 2796: only one node has free devices."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await world.reserve(asks(gpus=4, duration="2h"))
    gang = await world.reserve(asks(2))
    await world.settle()

    assert (await world.state(gang.id), (await world.get(gang.id)).members) == ("pending", [])


async def test_a_coordinator_that_was_dead_for_an_hour_does_everything_in_its_first_pass(world: World) -> None:
    """Ends, starts and missed windows; and its own absence is nobody's silence."""
    await world.join_all("a1 a2 a3")
    over = await world.reserve(asks(duration="30m"))
    going_on = await world.reserve(asks(duration="5h"))
    due = await world.reserve(asks(gpus=4, start="+40m", duration="2h"))
    missed = await world.reserve(asks(gpus=4, start="+10m", duration="20m"))
    await world.settle()
    agents = list(world.agents.values())
    for agent in agents:
        agent.is_up = False
    await world.coordinator.database.close()

    world.clock.ms += HOUR
    await world.restart()
    await world.coordinator.passes.run_once()

    states = [await world.state(one.id) for one in (over, going_on, due, missed)]
    assert states == ["ending", "active", "binding", "ended"]
    assert (await world.get(missed.id)).reason == "Expired"
    assert [await world.story(agent.node_id) for agent in agents] == [["joined", "inventory_changed"]] * 3
    for agent in agents:
        agent.is_up = True
    await world.settle()
    assert [await world.state(one.id) for one in (over, going_on, due)] == ["ended", "active", "active"]


async def test_a_restart_with_active_work_changes_nothing_for_the_grace(world: World) -> None:
    """determined 4463: nobody has reported to the new coordinator yet."""
    agents = await world.join_all("a1 a2 a3")
    ids = [(await world.reserve(asks(duration="5h"))).id for _ in agents]
    await world.settle()
    for agent in agents:
        agent.is_up = False
    events = await world.count_events()

    world.clock.ms += 30 * SECOND  # the former leader's lease is over
    await world.restart()
    await world.coordinator.passes.run_once()
    world.clock.ms += 120 * SECOND
    await world.coordinator.passes.run_once()

    assert await world.count_events() == events
    assert {await world.state(one) for one in ids} == {"active"}


async def test_releasing_or_cancelling_what_ended_otherwise_is_a_conflict(world: World) -> None:
    await world.join("a1")
    booked = await world.reserve(asks(start="+1h"))
    with pytest.raises(Problem, match="cancel it instead") as refusal:
        await world.coordinator.release(booked.id)
    assert refusal.value.code is Code.CONFLICT
    await world.coordinator.cancel(booked.id)
    before = await world.rows()

    with pytest.raises(Problem, match=r"has already ended \(Cancelled\)"):
        await world.coordinator.release(booked.id)
    with pytest.raises(Problem, match="there is no reservation") as refusal:
        await world.coordinator.cancel("rsv_unknown")

    assert refusal.value.code is Code.NOT_FOUND
    assert await world.rows() == before


async def test_a_turnaround_keeps_neighbours_apart(world: World) -> None:
    await world.coordinator.write(operate.create_pool, "slow", {"turnaround_ms": 30 * MINUTE})
    await world.join("a1", pool="slow")
    first = await world.reserve(asks(pool_id="slow", start="+1h"))

    too_near = await world.reserve(asks(pool_id="slow", start="+2h"))
    apart = await world.reserve(asks(pool_id="slow", start="+2h30m"))
    before = await world.reserve(asks(pool_id="slow", start="+1m", duration="30m"))

    assert [one.state for one in (first, too_near, apart, before)] == ["placed", "pending", "placed", "pending"]
