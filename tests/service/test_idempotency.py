"""One key, one reservation: the same body is answered again, another one is refused."""

import asyncio

import pytest

from muster_coordinator.service.nodes import operate
from muster_shared.errors import Code, Problem
from tests.support.service_world import World, asks


async def test_r51_the_same_body_is_answered_with_the_same_reservation(world: World) -> None:
    await world.join("a1")
    first = await world.reserve(asks(key="weekly", start="+2h"))
    before = await world.rows()
    world.clock.ms += 1_000  # `+2h` is what was written, so the repeated call is the same request

    again = await world.reserve(asks(key="weekly", start="+2h"))

    assert again == first
    assert await world.rows() == before


async def test_r51_another_body_is_refused_and_changes_nothing(world: World) -> None:
    await world.join("a1")
    await world.reserve(asks(key="weekly"))
    before = await world.rows()

    with pytest.raises(Problem, match="was used for another request") as refusal:
        await world.reserve(asks(gpus=4, key="weekly"))

    assert (refusal.value.code, refusal.value.errors[0].path) == (Code.IDEMPOTENCY_MISMATCH, "idempotencyKey")
    assert await world.rows() == before


async def test_r51_a_key_belongs_to_its_tenant(world: World) -> None:
    await world.join("a1")
    mine = await world.reserve(asks(gpus=4, key="weekly"))

    theirs = await world.reserve(asks(gpus=4, key="weekly", tenant="other"))

    assert theirs.id != mine.id
    assert (await world.get(mine.id)).tenant_id == "acme"


async def test_r51_a_key_outlives_its_reservation_and_the_coordinator(world: World) -> None:
    await world.join("a1")
    first = await world.reserve(asks(key="weekly"))
    await world.coordinator.cancel(first.id)
    await world.settle()
    assert (await world.reserve(asks(key="weekly"))).id == first.id
    await world.restart()

    again = await world.reserve(asks(key="weekly"))

    assert (again.id, again.state, again.reason) == (first.id, "ended", "Cancelled")


async def test_r51_calls_in_parallel_make_one_reservation(world: World) -> None:
    await world.join("a1")

    made = await asyncio.gather(*(world.reserve(asks(gpus=1, key="weekly")) for _ in range(8)))

    assert len({one.id for one in made}) == 1
    assert len((await world.rows())["reservation"]) == 1


async def test_r51_of_two_bodies_at_one_time_one_is_made_and_the_other_refused(world: World) -> None:
    """Neither is told to wait: whoever comes second meets what the first has stored."""
    await world.join("a1")

    made = await asyncio.gather(
        *(world.reserve(asks(gpus=1 + number % 2, key="weekly")) for number in range(8)), return_exceptions=True
    )

    placed = [one for one in made if not isinstance(one, BaseException)]
    assert len({one.id for one in placed}) == 1
    assert len({one.devices[0].count for one in placed}) == 1
    assert [one.code for one in made if isinstance(one, Problem)] == [Code.IDEMPOTENCY_MISMATCH] * 4
    assert len((await world.rows())["reservation"]) == 1


async def test_parallel_calls_for_two_pools_make_one_reservation_and_one_refusal(world: World) -> None:
    await world.join("a1")
    await world.coordinator.write(operate.create_pool, "other", {})

    made = await asyncio.gather(
        *(world.reserve(asks(gpus=1, key="weekly", pool_id=pool)) for pool in ("default", "other") * 4),
        return_exceptions=True,
    )

    refusals = {one.code for one in made if isinstance(one, Problem)}
    assert len({one.id for one in made if not isinstance(one, BaseException)}) == 1
    assert refusals == {Code.IDEMPOTENCY_MISMATCH}
    assert sum(isinstance(one, Problem) for one in made) == 4
