"""What tenants may hold, and have used."""

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service.accounts import quota, usage
from muster_coordinator.service.accounts.bodies import QuotaQuery, QuotaRemoval, QuotaRequest, QuotaView
from muster_coordinator.service.accounts.usage_bodies import UsageQuery, UsageRecords, UsageView
from muster_coordinator.service.bodies import Page
from muster_coordinator.service.doctor.bodies import Diagnosis
from muster_coordinator.service.doctor.examine import examine


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


async def usage_lines(call: Call[Services, None, UsageQuery]) -> UsageView:
    """Tell what was promised and delivered, reservation by reservation."""
    return await call.services.database.read_still(usage.lines, call.services.clock.moment(), _confined(call))


async def usage_records(call: Call[Services, None, UsageQuery]) -> UsageRecords:
    """Tell what each allocation held."""
    return await call.services.database.read_still(usage.records, call.services.clock.moment(), _confined(call))


async def examined(call: Call[Services, None, None]) -> Diagnosis:
    """Examine the whole database."""
    return await call.services.database.read_still(examine, call.services.clock.moment())


def _confined(call: Call[Services, None, UsageQuery]) -> UsageQuery:
    return call.query.model_copy(update={"tenant_id": call.guard.confine(call.query.tenant_id)})
