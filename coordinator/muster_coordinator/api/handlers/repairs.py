"""Repairs that somebody asks for."""

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service.repairs.bodies import RepairedView, RepairRequest
from muster_coordinator.service.repairs.mend import repair_now, try_repair


async def repaired(call: Call[Services, RepairRequest, None]) -> RepairedView:
    """Repair one reservation now, or tell who would take over."""
    services, moment = call.services, call.services.clock.moment()
    if call.body.dry_run:
        return await services.database.read(try_repair, moment, call.path["id"], call.body, services.index)
    answer = await services.database.write(repair_now, moment, call.path["id"], call.body, services.index)
    services.changed.beat()
    return answer
