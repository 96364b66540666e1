"""Extend in every state of a reservation: what is booked, what only asks, what is over, and whose node is silent."""

from muster_shared.errors import Code
from tests.support.extending import booked_until, extended, refused, running, tried
from tests.support.service_world import HOUR, MINUTE, World, asks, end_of, start_of
from tests.support.upkeep_world import declare, id_of


async def test_a_booking_that_has_not_begun_lasts_longer_and_begins_as_before(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    made = await world.reserve(asks(2, start="+1h"))

    await extended(world, made.id, until="+4h")

    await world.until(start_of(made) + 2 * HOUR)
    after = await world.get(made.id)
    assert (after.state, after.duration, after.end) == ("active", 3 * HOUR, start_of(made) + 3 * HOUR)


async def test_a_gang_that_is_binding_lasts_longer_once_it_is_bound(world: World) -> None:
    agents = await world.join_all("a1 a2", fabric="fabric-a.1")
    agents[1].confirms = False
    made = await running(world, 2)

    answer = await extended(world, made.id, by="1h")
    agents[1].confirms = True
    await world.settle()

    after = await world.get(made.id)
    assert (answer.state, after.state, after.end) == ("binding", "active", end_of(made) + HOUR)
    assert after.protected_until == after.end


async def test_what_is_pending_asks_for_longer_and_is_placed_for_all_of_it(world: World) -> None:
    node = await world.join("n1")
    await world.cordon(node)
    made = await world.reserve(asks(start="+1h"))
    fixed = await world.reserve(asks(start="+5h", end="+6h"))

    await extended(world, made.id, by="1h")
    await extended(world, fixed.id, until="+7h")

    assert (await world.get(made.id)).state == "pending"
    assert await booked_until(world, made.id) == set()
    await world.uncordon(node)
    await world.settle()
    after, end = await world.get(made.id), (await world.get(fixed.id)).end
    assert (after.state, after.duration, end) == ("placed", 2 * HOUR, end_of(fixed) + HOUR)


async def test_an_end_that_was_given_moves_too(world: World) -> None:
    """A late placement books up to the end as it is now, not as it was first given."""
    node = await world.join("n1")
    await world.cordon(node)
    made = await world.reserve(asks(start="+1h", end="+2h"))
    await extended(world, made.id, until="+3h")

    await world.wait(HOUR + 30 * MINUTE)
    await world.uncordon(node)
    await world.settle()

    after = await world.get(made.id)
    assert (after.state, after.start, after.end) == ("active", world.now_ms, end_of(made) + HOUR)


async def test_what_is_over_is_not_extended(world: World) -> None:
    node = await world.join("n1")
    first = await running(world)
    node.lets_go = False
    await world.coordinator.release(first.id)
    ending = await refused(world, first.id, by="1h")
    node.lets_go = True
    await world.settle()
    ended = await refused(world, first.id, by="1h")
    second = await running(world)
    world.clock.ms = end_of(second)
    over = await refused(world, second.id, by="1h")
    await world.cordon(node)
    late = await world.reserve(asks(end="+1h"))
    world.clock.ms += HOUR
    expired = await refused(world, late.id, by="1h")

    assert {code for code, _ in (ending, ended, over, expired)} == {Code.CONFLICT}
    assert "is ending (Released)" in ending[1]
    assert "has ended (Released)" in ended[1]
    assert "is over" in over[1]
    assert "expires" in expired[1]


async def test_a_node_that_has_let_go_at_its_end_is_not_called_back(world: World) -> None:
    """Nodes end early by a round trip: what one has given back is no longer the tenant's."""
    node = await world.join("n1")
    first = await running(world)
    world.clock.ms = end_of(first) - 5_000
    node.has.clear()
    await node.report()

    assert await refused(world, first.id, by="1h") == (
        Code.CONFLICT,
        f"{first.id} is letting go already, at the end that it was told: reserve again",
    )


async def test_a_silent_node_is_granted_the_time_in_the_book_and_shows_its_older_grant(world: World) -> None:
    """F06: extend is granted while a node is cut off; what it holds it lets go at the end that it knows."""
    agents = await world.join_all("a1 a2", fabric="fabric-a.1")
    first = await running(world, 2)
    agents[1].is_up = False
    await world.wait(3 * MINUTE)

    await extended(world, first.id, by="2h")
    await world.settle()

    after = await world.get(first.id)
    assert (after.state, after.end) == ("active", end_of(first) + 2 * HOUR)
    assert [one.granted_until for one in after.members] == [None, end_of(first)]
    agents[1].is_up = True
    await world.settle()
    assert [one.granted_until for one in (await world.get(first.id)).members] == [None, None]


async def test_atoms_that_a_former_tenant_has_not_let_go_of_keep_no_extension_away(world: World) -> None:
    """A start waits for them, its end does not."""
    node = await world.join("n1")
    first = await running(world)
    node.lets_go = False
    await world.until(end_of(first) - MINUTE)
    behind = await world.reserve(asks(start=end_of(first)))
    await world.until(end_of(first))

    answer = await extended(world, behind.id, by="1h")

    assert (answer.state, answer.duration) == ("binding", 2 * HOUR)


async def test_maintenance_behind_it_is_named_to_everybody(world: World) -> None:
    """R12, R27: maintenance keeps an extension away as a booking does, with the gap of the pool."""
    await world.join("a1")
    first = await running(world)
    upkeep = await declare(world, "a1", start="+2h", duration="4h")

    found = (await tried(world, first.id, by="2h")).extension

    assert (found.fits, found.longest_end) == (False, end_of(first) + HOUR)
    assert (found.blocked_by.kind, found.blocked_by.maintenance_id) == ("maintenance", id_of(upkeep))
    assert f"maintenance {id_of(upkeep)} has devices of a1" in (await refused(world, first.id, by="2h"))[1]
    assert (await extended(world, first.id, by="1h")).end == found.longest_end


async def test_maintenance_that_waits_for_a_reservation_to_end_is_not_put_off_by_it(world: World) -> None:
    await world.join("a1")
    first = await running(world)
    await declare(world, "a1", start="+30m", duration="4h")

    assert (await tried(world, first.id)).extension.longest_end == end_of(first)
    assert "it cannot end any later: maintenance" in (await refused(world, first.id, by="1m"))[1]
