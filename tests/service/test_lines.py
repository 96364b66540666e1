"""Pending work waits in lines: one plan and one sentence for all that would be refused for the same cause."""

from collections.abc import Mapping, Sequence

import pytest
from sqlalchemy import Connection, select

from muster_coordinator.core.placement.pipeline import plan
from muster_coordinator.service import admit, again
from muster_coordinator.service.bodies import Condition, ReservationRequest
from muster_coordinator.service.nodes import operate
from muster_coordinator.service.waiting import lines
from muster_coordinator.store import read
from muster_coordinator.store.tables import RESERVATION, WAIT
from tests.support.service_world import HOUR, MINUTE, SECOND, World, asks

NEVER: Mapping[str, ReservationRequest] = {
    "more devices than any node has": asks(gpus=9),
    "more nodes than any fabric has": asks(3),
    "a label that no node carries": asks(node_selector={"rack": "r9"}),
    "a key that no node carries": asks(2, same="rack"),
}


async def condition_of(world: World, reservation_id: str) -> Condition:
    condition = (await world.get(reservation_id)).condition
    assert condition is not None
    return condition


async def stored(world: World) -> tuple[int, dict[str, bool]]:
    """Return how many lines have been told something, and which pending reservations keep a sentence of their own."""

    def found(connection: Connection) -> tuple[int, dict[str, bool]]:
        told = connection.execute(select(WAIT.c.key)).all()
        pending = select(RESERVATION.c.id, RESERVATION.c.condition).where(RESERVATION.c.state == "pending")
        return len(told), {row.id: row.condition is not None for row in connection.execute(pending)}

    return await world.coordinator.database.read(found)


async def lines_of(world: World) -> list[int]:
    """Return how many wait in each line, the line with the oldest first."""
    (pool,) = await world.coordinator.database.read(read.pools)
    return [line.waiting for line in await world.coordinator.database.read(lines, pool.id)]


async def in_turn(world: World, *asked: ReservationRequest) -> list[str]:
    """Ask for one after the other, a second apart."""
    made: list[str] = []
    for one in asked:
        made.append((await world.reserve(one)).id)
        world.clock.ms += SECOND
    return made


async def waiting(world: World, made: Sequence[str]) -> list[int]:
    """Return which of them are pending, by their place."""
    return [at for at, one in enumerate(made) if await world.state(one) == "pending"]


async def free(world: World, reservation_id: str) -> None:
    await world.coordinator.release(reservation_id)
    await world.settle()


async def test_one_plan_answers_for_a_whole_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    for name in ("a1", "a2"):
        await world.reserve(asks(gpus=5, duration="9h", tenant=name))
    shapes = (asks(gpus=8), asks(gpus=9), asks(2, gpus=6))
    made = [await in_turn(world, *[shape] * 4) for shape in shapes]
    before = [await world.story(one) for line in made for one in line]
    planned: list[int] = []

    def counted(*args: object, **kwargs: object) -> object:
        planned.append(1)
        return plan(*args, **kwargs)  # type: ignore[arg-type] # it passes on what it was given

    monkeypatch.setattr(admit, "plan", counted)
    await world.wait(MINUTE)
    planned_in_turn = len(planned)

    told, own = await stored(world)
    sentences = [{(await condition_of(world, one)).message for one in line} for line in made]
    assert (planned_in_turn, told, len(own), any(own.values())) == (3, 3, 12, False)
    assert [len(one) for one in sentences] == [1, 1, 1]
    assert len(set.union(*sentences)) == 3
    assert [await world.story(one) for line in made for one in line] == before


async def test_what_is_freed_goes_to_the_oldest_across_all_lines(world: World) -> None:
    await world.join("a1")
    first = await world.reserve(asks())
    await world.settle()
    made = await in_turn(world, asks(gpus=3), asks(gpus=8), asks(gpus=3), asks(gpus=2), asks(gpus=3))

    await free(world, first.id)
    after_first = await waiting(world, made)
    for at in (0, 2, 3):
        await world.coordinator.release(made[at])
    await world.settle()
    after_second = await waiting(world, made)
    await free(world, made[1])

    assert (after_first, after_second, await waiting(world, made)) == ([1, 4], [4], [])


async def test_within_a_line_the_oldest_goes_first(world: World) -> None:
    await world.join("a1")
    running = (await world.reserve(asks())).id
    await world.settle()
    made = await in_turn(world, *[asks(tenant=f"t{at}") for at in range(4)])

    for turn in range(4):
        await free(world, running)
        assert await waiting(world, made) == list(range(turn + 1, 4))
        running = made[turn]


async def test_a_start_that_passes_moves_work_to_the_line_of_those_that_begin_at_once(world: World) -> None:
    await world.join("a1")
    await world.reserve(asks(duration="9h"))
    later, now, _ = await in_turn(world, asks(start="+1h"), asks(), asks(start="+2h"))
    await world.wait(MINUTE)
    apart = await lines_of(world)

    await world.wait(HOUR)
    together = await lines_of(world)

    assert (apart, together) == ([1, 1, 1], [2, 1])
    assert await condition_of(world, later) == await condition_of(world, now)


async def test_a_line_in_which_nobody_waits_any_more_is_forgotten(world: World) -> None:
    await world.join("a1")
    running = await world.reserve(asks(duration="9h"))
    made = await in_turn(world, asks(gpus=1), asks(gpus=2))
    await world.wait(MINUTE)
    before, _ = await stored(world)
    await world.coordinator.cancel(made[0])
    await world.reserve(asks(gpus=3))
    await world.wait(MINUTE)
    after, _ = await stored(world)
    await free(world, running.id)

    assert (before, after, await waiting(world, made)) == (2, 2, [])


async def test_a_lost_race_is_a_reason_of_its_own_until_the_line_is_tried_again(world: World) -> None:
    await world.coordinator.write(operate.create_pool, "hasty", {"max_attempts": 1})
    node = await world.join("a1", pool="hasty")
    await world.cordon(node)
    unlucky, beside = await in_turn(world, asks(pool_id="hasty"), asks(pool_id="hasty", tenant="beside"))
    await world.coordinator.write(operate.set_intent, node.node_id, "schedulable", None)
    pool_row = await world.coordinator.database.read(read.pool, "hasty")
    assert pool_row is not None
    stale = await world.coordinator.database.read(read.snapshot, pool_row, world.now_ms)
    await world.reserve(asks(gpus=1, pool_id="hasty"))
    index = world.coordinator.index
    await world.coordinator.database.flow(again.retry, world.clock.moment(), unlucky, stale, index)

    lost, other = (await condition_of(world, unlucky)).reason, (await condition_of(world, beside)).reason
    await world.wait(MINUTE)

    assert (lost, other) == ("lostRace", "doesNotFit")
    assert await condition_of(world, unlucky) == await condition_of(world, beside)
    assert (await condition_of(world, unlucky)).reason == "doesNotFit"
    assert await world.story(unlucky) == ["created", "unschedulable", "unschedulable"]


@pytest.mark.parametrize("what", NEVER)
async def test_what_no_wait_can_cure_is_said_at_once(world: World, what: str) -> None:
    """The pool is full as well: that it is booked is not the reason."""
    for node in await world.join_all("a1 a2", fabric="fabric-a.1"):
        await world.reserve(asks(tenant=node.name))

    made = await world.reserve(NEVER[what])

    assert made.state == "pending"
    assert (await condition_of(world, made.id)).reason == "neverFits"


async def test_what_could_never_fit_is_placed_as_soon_as_a_node_joins_that_can(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    made = await world.reserve(asks(3))
    await world.join("a3", fabric="fabric-a.1")

    await world.settle()

    assert await world.state(made.id) == "active"
