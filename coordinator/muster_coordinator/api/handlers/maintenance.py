"""Maintenance windows, for operators."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.clock import Moment
from muster_coordinator.service import look
from muster_coordinator.service.bodies import Page
from muster_coordinator.service.maintenance import declare as maintenance
from muster_coordinator.service.maintenance import look as maintenance_look
from muster_coordinator.service.maintenance.bodies import MaintenanceRequest, MaintenanceView
from muster_shared.codec import Count, Request, Text


class MaintenanceQuery(Request):
    """Which windows, and how many at once."""

    pool_id: Text | None = None
    all: bool = Field(default=False, description="Those that are over, too")
    limit: Annotated[Count, Field(ge=1, le=look.PAGE_MAX)] = 100  # bounds beside a default would not be kept
    cursor: Text | None = None


async def create(call: Call[Services, MaintenanceRequest, None]) -> MaintenanceView:
    """Declare a window; answer it with those who are in the way."""
    services = call.services
    made = await services.database.flow(
        maintenance.create, services.clock.moment(), call.body, services.index, call.guard
    )
    call.guard.committed()
    services.changed.beat()
    return await _shown(services, made)


async def preview(call: Call[Services, MaintenanceRequest, None]) -> MaintenanceView:
    """Answer what declaring this window would do now."""
    services = call.services
    return await services.database.read(maintenance_look.preview, services.clock.moment(), call.body, services.index)


async def listed(call: Call[Services, None, MaintenanceQuery]) -> Page:
    """List windows, oldest first."""
    services, query = call.services, call.query
    items = await services.database.read(
        maintenance_look.listed,
        services.clock.moment(),
        services.index,
        pool_id=query.pool_id,
        everything=query.all,
        after=query.cursor,
        limit=query.limit,
    )
    return Page(items=items, next_cursor=items[-1].id if len(items) == query.limit else None)


async def shown(call: Call[Services, None, None]) -> MaintenanceView:
    """Show one window with its nodes and those who are in the way."""
    return await _shown(call.services, call.path["id"])


async def cancelled(call: Call[Services, None, None]) -> MaintenanceView:
    """Take back a window that has not begun."""
    return await _over(call, maintenance.cancel)


async def ended(call: Call[Services, None, None]) -> MaintenanceView:
    """Give the nodes back before the window is over."""
    return await _over(call, maintenance.end)


async def _over(
    call: Call[Services, None, None], body: Callable[[Connection, Moment, str], tuple[str, ...]]
) -> MaintenanceView:
    services = call.services
    await services.advance_all(await services.database.write(body, services.clock.moment(), call.path["id"]))
    return await _shown(services, call.path["id"])


async def _shown(services: Services, maintenance_id: str) -> MaintenanceView:
    return await services.database.read(maintenance_look.shown, services.clock.moment(), maintenance_id, services.index)
