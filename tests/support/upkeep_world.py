"""Declares maintenance in a small world, and looks at it, as the API does."""

from typing import Any

from muster_coordinator.service.maintenance import declare as maintenance
from muster_coordinator.service.maintenance import look as maintenance_look
from muster_coordinator.service.maintenance.bodies import MaintenanceRequest, MaintenanceView
from tests.support.service_world import World


def wants(*names: str, start: str | int | None = "+2h", duration: str = "4h", **more: Any) -> MaintenanceRequest:
    return MaintenanceRequest(nodes=list(names), start=start, duration=duration, reason="new fans", **more)


async def declare(world: World, *names: str, **more: Any) -> MaintenanceView:
    """Do what the API does."""
    coordinator = world.coordinator
    made = await coordinator.database.flow(
        maintenance.create, world.clock.moment(), wants(*names, **more), coordinator.index
    )
    return await shown(world, made)


async def shown(world: World, maintenance_id: str) -> MaintenanceView:
    coordinator = world.coordinator
    return await coordinator.database.read(
        maintenance_look.shown, world.clock.moment(), maintenance_id, coordinator.index
    )


async def foretold(world: World, *names: str, **more: Any) -> MaintenanceView:
    coordinator = world.coordinator
    return await coordinator.database.read(
        maintenance_look.preview, world.clock.moment(), wants(*names, **more), coordinator.index
    )


def id_of(view: MaintenanceView) -> str:
    assert view.id is not None, "it was declared"
    return view.id


def booked(view: MaintenanceView) -> dict[str, bool]:
    return {node.node_name: node.booked for node in view.nodes}


def reasons(view: MaintenanceView) -> dict[str, list[str]]:
    return {node.node_name: [one.reason for one in node.in_the_way] for node in view.nodes if node.in_the_way}
