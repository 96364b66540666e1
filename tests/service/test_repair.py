"""BookingRepair: what breaks a booking, when it moves, and what is never touched."""

from muster_coordinator.service.again import retry
from muster_coordinator.store import read
from tests.support.service_world import DAY, HOUR, MINUTE, SECOND, World, asks, start_of


async def booked_gang(world: World, start: str = "+2h", size: int = 2) -> str:
    """A gang on every node of fabric a, with one spare that joined later."""
    await world.join_all(" ".join(f"a{number}" for number in range(1, size + 1)), fabric="fabric-a.1")
    gang = await world.reserve(asks(size, start=start))
    await world.join("a9", fabric="fabric-a.1")
    assert gang.state == "placed"
    return gang.id


async def test_a_hold_on_a_booked_device_moves_that_member_inside_the_fabric(world: World) -> None:
    gang = await booked_gang(world, size=4)
    before = await world.get(gang)
    world.agents["a2"].hold(3)

    await world.agents["a2"].report()

    after = await world.get(gang)
    assert (after.state, await world.nodes_of(gang)) == ("placed", "a1 a3 a4 a9")
    assert (after.start, after.end, after.topology_value) == (before.start, before.end, before.topology_value)
    assert await world.story(gang) == ["created", "placed", "at_risk", "repaired"]
    (told,) = await world.told(gang, "reservation.repaired")
    assert told["from"] == [world.agents["a2"].node_id]
    assert sorted(told["nodeIds"]) == sorted(world.agents[name].node_id for name in ("a1", "a3", "a4", "a9"))
    kept = {one.allocation_id for one in before.members} & {one.allocation_id for one in after.members}
    assert len(kept) == 3


async def test_a_hold_beside_the_booked_devices_moves_nothing(world: World) -> None:
    node = await world.join("a1")
    booked = await world.reserve(asks(gpus=4, start="+1h"))
    taken = {int(device[-1]) for device in booked.members[0].devices}
    node.hold(min(set(range(8)) - taken))

    await node.report()

    assert await world.story(booked.id) == ["created", "placed"]


async def test_a_lost_device_moves_its_booking(world: World) -> None:
    gang = await booked_gang(world)
    world.agents["a1"].lost = (5,)

    await world.agents["a1"].report()

    assert await world.nodes_of(gang) == "a2 a9"
    assert "deviceLost" in (await world.told(gang, "reservation.at_risk"))[0]["risks"][0]


async def test_a_device_that_its_node_no_longer_lists_moves_its_booking(world: World) -> None:
    """nomad 9473: an agent that has just restarted shows no device at all; nothing is bound on it."""
    gang = await booked_gang(world, start="+1s")
    node = world.agents["a1"]
    node.gpus = 0
    await node.report()
    assert await world.nodes_of(gang) == "a2 a9"

    await world.wait(SECOND)

    assert await world.state(gang) == "active"
    assert node.told == []
    assert (await world.reserve(asks(gpus=1, node_selector={}, duration="30m"))).state == "pending"


async def test_a_cordon_moves_what_has_not_begun_and_leaves_what_runs(world: World) -> None:
    node = await world.join("a1")
    running = await world.reserve(asks(gpus=4, duration="5h"))
    booked = await world.reserve(asks(gpus=4, start="+1h"))
    await world.settle()
    await world.join("a2")

    await world.cordon(node)

    assert (await world.nodes_of(running.id), await world.state(running.id)) == ("a1", "active")
    assert (await world.nodes_of(booked.id), await world.state(booked.id)) == ("a2", "placed")


async def test_another_topology_value_moves_the_member(world: World) -> None:
    gang = await booked_gang(world)
    world.agents["a1"].fabric = "fabric-b.1"

    await world.agents["a1"].report()

    assert (await world.nodes_of(gang), (await world.get(gang)).topology_value) == ("a2 a9", "fabric-a.1")


async def test_a_value_that_is_only_absent_is_a_risk_and_cleared_when_it_comes_back(world: World) -> None:
    """R52, azhpc-images 506: transitional after a reboot."""
    gang = await booked_gang(world)
    node = world.agents["a1"]
    node.reboot()
    node.fabric = None
    await node.report()
    await node.report()
    assert (await world.nodes_of(gang), len((await world.get(gang)).at_risk)) == ("a1 a2", 1)

    node.fabric = "fabric-a.1"
    await node.report()
    await node.report()

    assert (await world.get(gang)).at_risk == []
    assert await world.story(gang) == ["created", "placed", "at_risk", "risk_cleared"]


async def test_no_room_in_the_fabric_moves_the_whole_gang_to_another(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, start="+2h"))
    await world.join_all("b1 b2", fabric="fabric-b.1")
    world.agents["a1"].hold(0)

    await world.agents["a1"].report()

    moved = await world.get(gang.id)
    assert (moved.state, await world.nodes_of(gang.id), moved.topology_value) == ("placed", "b1 b2", "fabric-b.1")
    assert (moved.start, moved.end) == (gang.start, gang.end)


async def test_a_pool_that_is_exactly_full_repairs_with_its_own_atoms_counted_as_free(world: World) -> None:
    """R18, openpbs 1828: one gang of four, one spare."""
    gang = await booked_gang(world, size=4)
    world.agents["a1"].hold(0)
    await world.agents["a1"].report()
    world.agents["a1"].holds.clear()
    await world.wait(10 * MINUTE)
    await world.wait(10 * MINUTE)  # it has proven itself
    world.agents["a2"].hold(0)

    await world.agents["a2"].report()

    assert (await world.state(gang), await world.nodes_of(gang)) == ("placed", "a1 a3 a4 a9")


async def test_a_repair_that_finds_nothing_waits_with_its_reason_and_its_size(world: World) -> None:
    """R26, SchedMD 13262: the size is a promise; a node that is added later fills it."""
    await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    gang = await world.reserve(asks(4, start="+2h"))
    world.agents["a3"].hold(0)
    await world.agents["a3"].report()
    failed = await world.get(gang.id)
    assert (failed.state, failed.members) == ("pending", [])
    assert failed.condition is not None
    assert failed.condition.reason == "BookingRepairFailed"
    assert failed.condition.message.startswith("no gang of 4 nodes fits in one fabric.domain")
    assert (await world.reserve(asks(gpus=1, start="+2h"))).state == "placed"  # what it gave up is free

    await world.join("a5", fabric="fabric-a.1")
    await world.join("a6", fabric="fabric-a.1")
    await world.settle()

    repaired = await world.get(gang.id)
    assert (repaired.state, len(repaired.members), repaired.condition) == ("placed", 4, None)
    assert (repaired.start, repaired.end) == (gang.start, gang.end)


async def test_a_repair_takes_from_no_other_booking(world: World) -> None:
    """R27, SchedMD 23547, 20803: the only free-looking node is booked across the window."""
    await world.join("a1")
    booked = await world.reserve(asks(start="+2h", duration="2h"))
    await world.join("a2")
    window = await world.reserve(asks(start="+3h", duration="2h", tenant="maintenance"))
    assert await world.nodes_of(window.id) == "a2"
    world.agents["a1"].hold(0)

    await world.agents["a1"].report()

    assert await world.state(booked.id) == "pending"
    assert (await world.state(window.id), await world.nodes_of(window.id)) == ("placed", "a2")
    assert await world.story(window.id) == ["created", "placed"]


async def test_far_ahead_a_broken_node_is_a_risk_at_once_and_a_move_at_the_horizon(world: World) -> None:
    """R29, openpbs 1478, Blazar: three days ahead; not only when the start is near, and not only until it."""
    gang = await booked_gang(world, start="+3d")
    start_ms = start_of(await world.get(gang))
    world.agents["a1"].hold(0)
    await world.settle()
    assert (await world.nodes_of(gang), len((await world.get(gang)).at_risk)) == ("a1 a2", 1)
    await world.until(start_ms - DAY - 1)
    assert await world.nodes_of(gang) == "a1 a2"

    await world.until(start_ms - DAY)

    assert (await world.state(gang), await world.nodes_of(gang)) == ("placed", "a2 a9")
    assert await world.story(gang) == ["created", "placed", "at_risk", "repaired"]


async def test_a_node_that_recovers_before_the_horizon_keeps_its_booking(world: World) -> None:
    """R03, R32, kueue 6325, Blazar: one at-risk, one cleared, no move."""
    gang = await booked_gang(world, start="+3d")
    before = await world.get(gang)
    node = world.agents["a1"]
    node.hold(0)
    for _ in range(3):
        await world.settle()
    await world.wait(10 * MINUTE)
    node.holds.clear()
    await world.settle()

    await world.until((start_of(before)) - HOUR)

    assert await world.story(gang) == ["created", "placed", "at_risk", "risk_cleared"]
    assert (await world.get(gang)).members == before.members


async def test_the_spare_goes_to_the_soonest_start_whatever_was_created_first(world: World) -> None:
    """R36, Blazar, YARN: bookings at +50 and +20 minutes, one spare for them both."""
    await world.join("a1")
    later = await world.reserve(asks(gpus=4, start="+50m", duration="3h"))
    world.clock.ms += 1
    sooner = await world.reserve(asks(gpus=4, start="+20m", duration="3h"))
    await world.join("a2", gpus=4)
    for number in range(8):
        world.agents["a1"].hold(number)

    await world.agents["a1"].report()
    await world.wait(MINUTE)  # one move a minute is enough for so small a pool

    assert (await world.state(sooner.id), await world.nodes_of(sooner.id)) == ("placed", "a2")
    assert await world.state(later.id) == "pending"


async def test_a_cordon_gives_the_spare_to_the_soonest_start_too(world: World) -> None:
    node = await world.join("a1")
    later = await world.reserve(asks(gpus=4, start="+50m", duration="3h"))
    world.clock.ms += 1
    sooner = await world.reserve(asks(gpus=4, start="+20m", duration="3h"))
    await world.join("a2", gpus=4)

    await world.cordon(node)

    assert (await world.state(sooner.id), await world.state(later.id)) == ("placed", "pending")


async def test_every_booking_is_looked_at_a_quarter_of_an_hour_before_its_start(world: World) -> None:
    """A node that fell silent since, with its silence still too short to matter by itself."""
    gang = await booked_gang(world)
    start_ms = start_of(await world.get(gang))
    await world.until(start_ms - 15 * MINUTE - 25 * SECOND)
    world.agents["a1"].is_up = False

    world.clock.ms = start_ms - 15 * MINUTE
    await world.settle()
    assert await world.nodes_of(gang) == "a1 a2"  # it has not lasted for half a minute
    await world.wait(5 * SECOND)

    assert await world.nodes_of(gang) == "a2 a9"


async def test_a_booking_is_looked_at_once_more_in_the_moment_it_starts(world: World) -> None:
    gang = await booked_gang(world)
    start_ms = start_of(await world.get(gang))
    await world.until(start_ms - MINUTE)
    world.agents["a1"].is_up = False

    world.clock.ms = start_ms
    await world.settle()

    assert (await world.state(gang), await world.nodes_of(gang)) == ("active", "a2 a9")
    assert await world.story(gang) == ["created", "placed", "at_risk", "repaired", "binding", "active"]
    assert world.agents["a1"].told == []


async def test_silence_is_a_risk_after_four_beats_and_a_move_after_two_minutes(world: World) -> None:
    gang = await booked_gang(world)
    await world.wait(10 * MINUTE)  # past the grace of the first epoch
    node = world.agents["a1"]
    node.is_up = False
    await world.wait(20 * SECOND)
    assert await world.story(gang) == ["created", "placed"]
    await world.wait(1)
    assert (await world.story(gang), await world.nodes_of(gang)) == (["created", "placed", "at_risk"], "a1 a2")
    assert await world.story(node.node_id) == ["joined", "inventory_changed", "unreachable"]
    await world.wait(100 * SECOND - 2)
    assert await world.nodes_of(gang) == "a1 a2"

    await world.wait(1)

    assert await world.nodes_of(gang) == "a2 a9"


async def test_a_node_that_is_heard_again_in_time_keeps_its_booking(world: World) -> None:
    gang = await booked_gang(world)
    await world.wait(10 * MINUTE)
    node = world.agents["a1"]
    node.is_up = False
    for _ in range(5):
        await world.wait(20 * SECOND)
    node.is_up = True
    await world.wait(SECOND)

    assert await world.story(gang) == ["created", "placed", "at_risk", "risk_cleared"]
    assert await world.nodes_of(gang) == "a1 a2"


async def test_silence_never_touches_what_is_active_and_heals_without_an_order(world: World) -> None:
    """nomad 12680, 16515: cut two minutes and more, then heal."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, duration="5h"))
    await world.settle()
    await world.join("a3", fabric="fabric-a.1")
    await world.wait(10 * MINUTE)
    node = world.agents["a1"]
    told = list(node.told)
    node.is_up = False
    for _ in range(10):
        await world.wait(30 * SECOND)
    assert (await world.state(gang.id), await world.nodes_of(gang.id)) == ("active", "a1 a2")

    node.is_up = True
    await world.settle()

    assert (node.told, world.agents["a3"].told) == (told, [])
    assert await world.story(gang.id) == ["created", "placed", "binding", "active"]


async def test_an_active_gang_is_not_moved_when_its_node_restarts_but_said_to_be_degraded(world: World) -> None:
    first, _ = await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, duration="5h"))
    await world.settle()
    await world.join("a3", fabric="fabric-a.1")
    first.reboot()

    await world.settle()

    assert (await world.state(gang.id), await world.binds(gang.id)) == ("active", {"a1": "lost", "a2": "bound"})
    assert (await world.story(gang.id))[-1] == "degraded"
    assert first.has == {}
    await world.coordinator.release(gang.id)
    await world.settle()
    assert (await world.get(gang.id)).reason == "Released"


async def test_after_a_repair_the_old_node_is_told_nothing_and_the_new_one_once(world: World) -> None:
    """R24, openpbs 2612, 1894: repaired one second before the start."""
    gang = await booked_gang(world)
    await world.until((start_of(await world.get(gang))) - SECOND)
    world.agents["a1"].hold(0)
    await world.settle()
    await world.wait(SECOND)

    assert await world.state(gang) == "active"
    assert (world.agents["a1"].told, len(world.agents["a9"].told)) == ([], 1)


async def test_a_node_that_broke_after_the_plan_is_not_booked(world: World) -> None:
    """R23, openpbs 450, 1305: health is read again in the commit, whatever the snapshot said."""
    first, second = await world.join_all("a1 a2")
    await world.cordon(first)
    await world.cordon(second)
    asked = await world.reserve(asks(start="+1h"))
    await world.uncordon(first)
    await world.uncordon(second)
    pool_row = await world.coordinator.database.read(read.pool, "default")
    assert pool_row is not None
    stale = await world.coordinator.database.read(read.snapshot, pool_row, world.now_ms)
    first.hold(0)
    await first.report()

    placed = await world.coordinator.database.flow(
        retry, world.clock.moment(), asked.id, stale, world.coordinator.index
    )

    assert (placed.is_placed, await world.nodes_of(asked.id)) == (True, "a2")


async def test_a_foreign_process_at_the_start_is_shown_and_the_member_is_swapped(world: World) -> None:
    """R49, SchedMD 24004: the agent finds the devices in use."""
    gang = await booked_gang(world)
    world.agents["a1"].refusal = ("blocked", "foreignProcess")
    await world.until(start_of(await world.get(gang)))
    shown = next(one for one in (await world.get(gang)).members if one.node_name == "a1")
    assert (shown.bind_state, shown.bind_reason) == ("binding", "foreignProcess")

    await world.wait(120 * SECOND)

    assert (await world.state(gang), await world.nodes_of(gang)) == ("active", "a2 a9")
