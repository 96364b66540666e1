"""Reservations change: they last longer, or gangs get smaller."""

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service.change_bodies import ExtendedView, ExtendRequest, ShrinkRequest, ShrunkView
from muster_coordinator.service.extend import extend, try_extend
from muster_coordinator.service.shrink import shrink, try_shrink


async def extended(call: Call[Services, ExtendRequest, None]) -> ExtendedView:
    """Extend one reservation where it is, all members or none; or tell how long it could last."""
    services, moment = call.services, call.services.clock.moment()
    if call.body.dry_run:
        return await services.database.read(try_extend, moment, call.path["id"], call.body)
    answer = await services.database.write(extend, moment, call.path["id"], call.body)
    services.changed.beat()
    return answer


async def shrunk(call: Call[Services, ShrinkRequest, None]) -> ShrunkView:
    """Let members of one gang go; or tell which would."""
    services, moment = call.services, call.services.clock.moment()
    if call.body.dry_run:
        return await services.database.read(try_shrink, moment, call.path["id"], call.body)
    answer = await services.database.write(shrink, moment, call.path["id"], call.body, services.index)
    services.changed.beat()
    return answer
