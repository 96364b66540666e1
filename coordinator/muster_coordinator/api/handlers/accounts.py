"""What tenants may hold, and have used."""

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service.accounts import quota
from muster_coordinator.service.accounts.bodies import QuotaQuery, QuotaRemoval, QuotaRequest, QuotaView
from muster_coordinator.service.bodies import Page


async def quotas(call: Call[Services, None, QuotaQuery]) -> Page:
    """List limits, and what is held of them."""
    tenant_id = call.guard.confine(call.query.tenant_id)
    return Page(items=await call.services.database.read(quota.quotas, tenant_id, call.query.pool_id))


async def limited(call: Call[Services, QuotaRequest, None]) -> QuotaView:
    """Set one limit."""
    services = call.services
    view = await services.database.write(quota.set_quota, services.clock.moment(), call.body)
    services.changed.beat()
    return view


async def lifted(call: Call[Services, None, QuotaRemoval]) -> None:
    """Lift one limit."""
    services = call.services
    await services.database.write(quota.remove_quota, services.clock.moment(), call.query)
    services.changed.beat()
