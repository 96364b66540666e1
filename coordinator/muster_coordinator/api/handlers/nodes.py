"""Nodes and pools, for operators."""

from typing import Annotated

from pydantic import Field

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.core.model import Intent
from muster_coordinator.service import look
from muster_coordinator.service.bodies import NodeLabels, NodeSlots, NodeView, Page, PoolRequest, PoolView, Reason
from muster_coordinator.service.nodes import operate, slots
from muster_coordinator.service.nodes.remove import remove_node
from muster_shared.codec import Count, Request, Text


class NodeQuery(Request):
    """Which nodes, and how many at once."""

    pool_id: Text | None = None
    limit: Annotated[Count, Field(ge=1, le=look.PAGE_MAX)] = 100  # bounds beside a default would not be kept
    cursor: Text | None = None


class HoldQuery(Request):
    """Which holds of a node: all of them when nothing is said."""

    device: Text | None = Field(default=None, description="UUID of a GPU")
    cause: Text | None = None
    reason: Text | None = Field(default=None, description="Kept with the event")


class RemovalQuery(Request):
    """Why a node leaves."""

    reason: Text | None = Field(default=None, description="Kept with the event")
    force: bool = Field(default=False, description="The machine is gone for good: give up what is booked on it")


async def listed(call: Call[Services, None, NodeQuery]) -> Page:
    """List nodes by name."""
    query = call.query
    items = await call.services.database.read(
        look.nodes, call.services.clock.moment(), pool_id=query.pool_id, after=query.cursor, limit=query.limit
    )
    return Page(items=items, next_cursor=items[-1].name if len(items) == query.limit else None)


async def shown(call: Call[Services, None, None]) -> NodeView:
    """Show one node, by id or name."""
    return await call.services.database.read(look.node, call.services.clock.moment(), call.path["id"])


async def opened(call: Call[Services, Reason, None]) -> NodeView:
    """Let new work onto a node again."""
    return await _with_intent(call, "schedulable")


async def cordoned(call: Call[Services, Reason, None]) -> NodeView:
    """Keep new work off a node; bookings that have not begun are moved."""
    return await _with_intent(call, "cordoned")


async def drained(call: Call[Services, Reason, None]) -> NodeView:
    """Keep new work off a node that is to be emptied."""
    return await _with_intent(call, "draining")


async def fenced(call: Call[Services, Reason, None]) -> NodeView:
    """Attest that a silent node holds nothing any more."""
    services = call.services
    touched = await services.database.write(operate.fence, services.clock.moment(), call.path["id"], call.body.reason)
    await services.advance_all(touched)
    return await _shown_again(call)


async def holds_cleared(call: Call[Services, None, HoldQuery]) -> NodeView:
    """Tell a node that holds of it are over; the agent ends them with its next report."""
    services, query = call.services, call.query
    await services.database.write(
        operate.clear_holds, services.clock.moment(), call.path["id"], query.device, query.cause, query.reason
    )
    services.changed.beat()
    return await services.database.read(look.node, services.clock.moment(), call.path["id"])


async def labelled(call: Call[Services, NodeLabels, None]) -> NodeView:
    """Set and remove operator labels."""
    services = call.services
    touched = await services.database.write(
        operate.set_labels, services.clock.moment(), call.path["id"], call.body.labels
    )
    await services.advance_all(touched)
    return await _shown_again(call)


async def cut(call: Call[Services, NodeSlots, None]) -> NodeView:
    """Cut a node's GPUs into shares, or make them whole again."""
    services, wanted = call.services, call.body
    await services.database.write(slots.cut, services.clock.moment(), call.path["id"], wanted.device, wanted.shares)
    services.changed.beat()
    return await _shown_again(call)


async def removed(call: Call[Services, None, RemovalQuery]) -> None:
    """Take a silent node out for good: an empty one, or one whose machine is gone with what is booked on it."""
    services, query = call.services, call.query
    touched = await services.database.write(
        remove_node, services.clock.moment(), call.path["id"], query.reason, force=query.force
    )
    await services.advance_all(touched)


async def pools(call: Call[Services, None, None]) -> Page:
    """List pools with their rollups."""
    return Page(items=await call.services.database.read(look.pools, call.services.clock.moment()))


async def pool(call: Call[Services, None, None]) -> PoolView:
    """Show one pool, by id or name."""
    return await call.services.database.read(look.pool, call.services.clock.moment(), call.path["id"])


async def pool_created(call: Call[Services, PoolRequest, None]) -> PoolView:
    """Make a pool."""
    services = call.services
    pool_id = await services.database.write(operate.create_pool, services.clock.moment(), call.body.name)
    services.changed.beat()
    return await services.database.read(look.pool, services.clock.moment(), pool_id)


async def _shown_again(
    call: Call[Services, Reason, None] | Call[Services, NodeLabels, None] | Call[Services, NodeSlots, None],
) -> NodeView:
    """Show the node that was just changed."""
    return await call.services.database.read(look.node, call.services.clock.moment(), call.path["id"])


async def _with_intent(call: Call[Services, Reason, None], intent: Intent) -> NodeView:
    services = call.services
    touched = await services.database.write(
        operate.set_intent, services.clock.moment(), call.path["id"], intent, call.body.reason
    )
    await services.advance_all(touched)
    return await _shown_again(call)
