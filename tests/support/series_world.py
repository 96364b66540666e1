"""Series in the world of the services: what a test asks for, and what the API does with it."""

from typing import Any

from muster_coordinator.service.bodies import DeviceRequest
from muster_coordinator.service.series import create as series
from muster_coordinator.service.series import look as series_look
from muster_coordinator.service.series.ahead import make_next
from muster_coordinator.service.series.bodies import SeriesRequest, SeriesView
from muster_shared.time import parse_instant
from tests.support.service_world import World


def at(text: str) -> int:
    """Return an instant, ms UTC."""
    return parse_instant(text, 0)


def comes(rule: str = "FREQ=DAILY", **others: Any) -> SeriesRequest:
    """Write a series: 8 GPUs for two hours from 10:00 on, by a rule on UTC's clocks."""
    asked: dict[str, Any] = {"tenant_id": "acme", "devices": [DeviceRequest(count=8)], "duration": "2h", "at": "10:00"}
    return SeriesRequest(**{**asked, "rule": rule, **others})


async def created(world: World, request: SeriesRequest) -> SeriesView:
    """Do what the API does for a create."""
    made = await world.coordinator.database.flow(series.create, world.clock.moment(), request)
    await made_ahead(world, made.series_id)
    return await look(world, made.series_id)


async def made_ahead(world: World, series_id: str) -> int:
    """Make what is due; return how much was done."""
    done = 0
    while await world.coordinator.database.flow(make_next, world.clock.moment(), series_id, world.coordinator.index):
        done += 1
    return done


async def look(world: World, series_id: str, ahead: int = 10) -> SeriesView:
    return await world.coordinator.database.read(series_look.one_series, world.clock.moment(), series_id, ahead)


def states(view: SeriesView) -> list[str]:
    """Return the states of the occurrences ahead, in order."""
    return [one.state for one in view.occurrences]
