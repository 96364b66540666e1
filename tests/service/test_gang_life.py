"""The life of a gang, from the request to the last confirmed release: all its members move together."""

from tests.support.service_world import HOUR, MINUTE, SECOND, World, asks, end_of, start_of


async def test_a_gang_lives_from_placed_to_ended_member_by_member(world: World) -> None:
    agents = await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    asked = await world.reserve(asks(4))
    assert (asked.state, asked.topology_value) == ("binding", "fabric-a.1")

    states = []
    for agent in agents:
        states.append(await world.state(asked.id))
        await agent.turn()
    active = await world.get(asked.id)
    assert (states, active.state) == (["binding"] * 4, "active")
    assert (active.activated, active.protected_until, active.end) == (world.now_ms, active.end, world.now_ms + HOUR)

    await world.coordinator.release(asked.id)
    states = []
    for agent in agents:
        states.append(await world.state(asked.id))
        await agent.turn()
    ended = await world.get(asked.id)
    assert (states, ended.state, ended.reason) == (["ending"] * 4, "ended", "Released")
    assert await world.story(asked.id) == ["created", "placed", "binding", "active", "ending", "ended"]


async def test_the_first_bound_allocation_is_the_binding(world: World) -> None:
    first, second = await world.join_all("a1 a2", fabric="fabric-a.1")
    asked = await world.reserve(asks(2))

    await second.turn()
    early = await world.get(asked.id)
    world.clock.ms += SECOND
    await first.turn()
    late = await world.get(asked.id)

    assert early.binding == next(m.allocation_id for m in late.members if m.node_name == "a2")
    assert late.binding == min(m.allocation_id for m in late.members if m.allocation_id)


async def test_a_booking_waits_for_its_hour_and_ends_with_it(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    asked = await world.reserve(asks(2, start="+2h"))
    booked = await world.get(asked.id)
    assert (booked.state, booked.start, booked.end) == ("placed", world.now_ms + 2 * HOUR, world.now_ms + 3 * HOUR)

    await world.until(start_of(booked) - 1)
    assert await world.binds(asked.id) == {"a1": "reserved", "a2": "reserved"}
    await world.until(start_of(booked))
    assert await world.state(asked.id) == "active"
    await world.until(end_of(booked) - 1)
    assert await world.state(asked.id) == "active"
    await world.until(end_of(booked))
    assert (await world.get(asked.id)).reason == "Completed"


async def test_what_does_not_fit_is_pending_with_its_reason_until_an_event_helps(world: World) -> None:
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    await world.join("b1", fabric="fabric-b.1")
    asked = await world.reserve(asks(4))
    assert asked.state == "pending"
    assert asked.condition is not None
    assert asked.condition.reason == "neverFits"
    assert asked.condition.message.startswith(
        "no gang of 4 nodes fits in one fabric.domain (at most 3 nodes fit together)"
    )

    await world.join("a4", fabric="fabric-a.1")
    await world.settle()

    assert await world.state(asked.id) == "active"
    assert await world.nodes_of(asked.id) == "a1 a2 a3 a4"


async def test_a_late_placement_has_its_full_duration_and_never_more_than_a_given_end(world: World) -> None:
    await world.join("a1")
    blocker = await world.reserve(asks(duration="2h"))
    by_length = await world.reserve(asks(gpus=4))
    by_end = await world.reserve(asks(gpus=4, end=world.now_ms + 3 * HOUR))
    await world.settle()

    await world.until(end_of(blocker))
    await world.settle()

    late = [await world.get(one.id) for one in (by_length, by_end)]
    assert [(one.state, one.start, one.end) for one in late] == [
        ("active", blocker.end, end_of(blocker) + HOUR),
        ("active", blocker.end, by_end.end),
    ]


async def test_pending_work_expires_at_its_latest_start(world: World) -> None:
    await world.join("a1")
    await world.reserve(asks(duration="2h"))
    asked = await world.reserve(asks(latest_start="+10m"))
    await world.until(world.now_ms + 10 * MINUTE)
    assert await world.state(asked.id) == "pending"

    await world.wait(30 * SECOND)

    expired = await world.get(asked.id)
    assert (expired.state, expired.reason, expired.condition) == ("ended", "Expired", None)


async def test_cancelling_ends_every_state_once_and_frees_every_member(world: World) -> None:
    agents = await world.join_all("a1 a2", fabric="fabric-a.1")
    pending = await world.reserve(asks(3))
    placed = await world.reserve(asks(2, start="+5h"))
    binding = await world.reserve(asks(2))
    for one in (pending, placed):
        assert (await world.coordinator.cancel(one.id)).reason == "Cancelled"
        assert await world.state(one.id) == "ended"
    await agents[0].turn()
    assert (await world.coordinator.cancel(binding.id)).state == "ending"
    await world.settle()
    active = await world.reserve(asks(2))
    await world.settle()
    assert (await world.coordinator.cancel(active.id)).state == "ending"
    assert (await world.coordinator.cancel(active.id)).state == "ending"
    await world.settle()

    for one in (pending, placed, binding, active):
        ended = await world.coordinator.cancel(one.id)
        assert (ended.state, ended.reason) == ("ended", "Cancelled")
        assert (await world.story(one.id)).count("ended") == 1
    assert [agent.has for agent in agents] == [{}, {}]
    assert (await world.reserve(asks(2))).state == "binding"
