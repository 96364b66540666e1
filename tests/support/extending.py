"""Extensions as a tenant asks for them, and what each of them leaves as it was."""

from typing import Any

import pytest
from sqlalchemy import select

from muster_coordinator.service.bodies import ReservationView
from muster_coordinator.service.changes.bodies import ExtendedView, ExtendRequest
from muster_coordinator.service.changes.extend import extend, try_extend
from muster_coordinator.store.tables import BOOKING
from muster_shared.errors import Code, Problem
from tests.support.service_world import World, asks


async def extended(world: World, reservation_id: str, **asked: Any) -> ExtendedView:
    return await world.coordinator.write(extend, reservation_id, ExtendRequest(**asked))


async def tried(world: World, reservation_id: str, **asked: Any) -> ExtendedView:
    """Ask how long it could last; nothing changes, not a byte."""
    before = await world.rows()
    request = ExtendRequest(dry_run=True, **asked)
    answer = await world.coordinator.database.read(try_extend, world.clock.moment(), reservation_id, request)
    assert await world.rows() == before
    return answer


async def refused(world: World, reservation_id: str, **asked: Any) -> tuple[Code, str]:
    """Return why it was refused; nothing changes, not a byte."""
    before = await world.rows()
    with pytest.raises(Problem) as problem:
        await extended(world, reservation_id, **asked)
    assert await world.rows() == before
    return problem.value.code, problem.value.detail


async def booked_until(world: World, reservation_id: str) -> set[int]:
    """Return the ends of a reservation's live bookings, turnaround included."""
    wanted = select(BOOKING.c.end_ms).where(BOOKING.c.reservation_id == reservation_id, BOOKING.c.live)
    return set(await world.coordinator.database.read(lambda connection: connection.execute(wanted).scalars().all()))


async def running(world: World, size: int = 1, **asked: Any) -> ReservationView:
    made = await world.reserve(asks(size, **asked))
    await world.settle()
    return await world.get(made.id)
