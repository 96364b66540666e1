"""Series: every occurrence is a reservation of its own, made ahead of its time, once, whatever happens to the others."""

from typing import Any

import pytest

from muster_coordinator.service import series, series_look
from muster_coordinator.service.ahead import make_next
from muster_coordinator.service.bodies import DeviceRequest
from muster_coordinator.service.series_bodies import OccurrenceChange, OccurrenceView, SeriesRequest, SeriesView
from muster_shared.errors import Code, Problem
from muster_shared.time import parse_instant
from tests.support.service_world import DAY, HOUR, MINUTE, World, asks

MONDAY_MS = parse_instant("2027-01-18T00:00:00Z", 0)  # three days after the world begins


def comes(rule: str = "FREQ=DAILY", at: str = "10:00", **others: Any) -> SeriesRequest:
    """Write a series: 8 GPUs for two hours, by a rule on UTC's clocks."""
    return SeriesRequest(
        **{"tenant_id": "acme", "devices": [DeviceRequest(count=8)], "rule": rule, "at": at, "duration": "2h", **others}
    )


async def created(world: World, request: SeriesRequest) -> SeriesView:
    """Do what the API does for a create."""
    made = await world.coordinator.database.flow(series.create, world.clock.moment(), request)
    await ahead(world, made.series_id)
    return await look(world, made.series_id)


async def ahead(world: World, series_id: str) -> None:
    while await world.coordinator.database.flow(make_next, world.clock.moment(), series_id, world.coordinator.index):
        pass


async def look(world: World, series_id: str, ahead: int = 10) -> SeriesView:
    return await world.coordinator.database.read(series_look.one_series, world.clock.moment(), series_id, ahead)


async def test_each_occurrence_is_a_reservation(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes())
    print(view)
    assert len(view.occurrences) == 10
