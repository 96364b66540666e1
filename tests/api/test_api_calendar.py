"""Nobody who calls decides whether what was promised begins and ends."""

from muster_coordinator.api.routes import OPERATIONS
from tests.support.service_world import HOUR, MINUTE, asks, end_of, start_of, world_on
from tests.support.serving import served


async def test_r50_reservations_begin_and_end_while_every_caller_is_turned_away(database_url: str) -> None:
    """SchedMD 11483, 21504: whoever knows the callers is away for ten minutes, across a start and an end."""
    async with (
        world_on(database_url) as world,
        served(OPERATIONS, services=world.coordinator.services, token=None) as client,
    ):
        await world.join("a1")
        first = await world.reserve(asks(gpus=4, start="+1h", duration="10m"))
        second = await world.reserve(asks(gpus=4, start="+65m", duration="1h"))

        for now_ms in (start_of(first), start_of(second), end_of(first)):
            await world.until(now_ms)
            async with client.get(f"/v1/reservations/{first.id}") as answer:
                assert answer.status == 401
            async with client.post(f"/v1/reservations/{second.id}/cancel") as answer:
                assert answer.status == 401

        assert (await world.get(first.id)).reason == "Completed"
        assert await world.state(second.id) == "active"
        assert end_of(second) - world.now_ms == HOUR - 5 * MINUTE
