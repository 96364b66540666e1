"""The timeline of a pool that lives: what is booked, what overruns, and what has been given back."""

from muster_coordinator.service.capacity import timeline
from muster_coordinator.service.capacity.bodies import TimelineQuery
from tests.support.service_world import HOUR, MINUTE, START_MS, World, asks


async def booked(world: World, start: str | int = "now", duration: str = "4h", bucket: str = "1h") -> list[int]:
    query = TimelineQuery(start=str(start), duration=duration, bucket=bucket)
    coordinator = world.coordinator
    view = await coordinator.database.read(timeline.timeline, world.clock.moment(), query, coordinator.index)
    assert all(one.free == max(0, view.allocatable - one.booked) for one in view.buckets)
    return [one.booked for one in view.buckets]


async def test_what_somebody_has_not_let_go_of_is_booked_now_and_promised_to_nobody_by_date(world: World) -> None:
    node = await world.join("a1")
    gang = await world.reserve(asks(duration="1h"))
    await world.settle()
    assert await booked(world) == [8, 0, 0, 0]
    node.lets_go = False
    await world.until(START_MS + HOUR)
    assert await world.state(gang.id) == "ending"

    assert await booked(world) == [8, 0, 0, 0]
    await world.wait(30 * MINUTE)
    assert await booked(world) == [8, 0, 0, 0]

    node.lets_go = True
    await world.settle()
    assert await booked(world) == [0, 0, 0, 0]


async def test_a_bucket_that_has_begun_counts_what_still_stands_in_it(world: World) -> None:
    await world.join("a1")
    await world.reserve(asks(gpus=4, duration="10m"))
    await world.reserve(asks(gpus=2, duration="50m"))
    await world.settle()

    await world.until(START_MS + 30 * MINUTE)

    assert await booked(world, START_MS, "1h") == [2]


async def test_the_timeline_follows_a_cancel_and_a_repair_at_once(world: World) -> None:
    await world.join("a1")
    gang = await world.reserve(asks(start="+1h"))
    other = await world.reserve(asks(gpus=2, start="+2h"))
    assert await booked(world) == [0, 8, 2, 0]
    await world.join("a2", gpus=2)
    world.agents["a1"].hold(0)
    await world.agents["a1"].report()
    assert await world.state(gang.id) == "pending"

    await world.coordinator.cancel(gang.id)

    assert await booked(world) == [0, 0, 2, 0]
    await world.coordinator.cancel(other.id)
    assert await booked(world) == [0, 0, 0, 0]


async def test_on_a_closed_node_never_less_than_nothing_is_free(world: World) -> None:
    node = await world.join("a1")
    await world.reserve(asks(gpus=8, duration="2h"))
    await world.settle()
    await world.cordon(node)

    assert await booked(world, duration="2h") == [8, 8]
