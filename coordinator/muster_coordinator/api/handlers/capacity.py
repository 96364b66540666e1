"""Capacity over time."""

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service.capacity import timeline
from muster_coordinator.service.capacity.bodies import OutlookQuery, OutlookView, TimelineQuery, TimelineView


async def shown(call: Call[Services, None, TimelineQuery]) -> TimelineView:
    """Show a pool's calendar, at most a week of it."""
    services = call.services
    return await services.database.read(timeline.timeline, services.clock.moment(), call.query, services.index)


async def far_ahead(call: Call[Services, None, OutlookQuery]) -> OutlookView:
    """Show a pool's calendar far ahead."""
    services = call.services
    return await services.database.read(timeline.outlook, services.clock.moment(), call.query, services.index)
