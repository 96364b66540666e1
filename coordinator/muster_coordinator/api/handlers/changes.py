"""Reservations change: they last longer, or gangs get smaller; and what a loss of nodes would change."""

import asyncio

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service.changes.bodies import ExtendedView, ExtendRequest, ShrinkRequest, ShrunkView
from muster_coordinator.service.changes.extend import extend, try_extend
from muster_coordinator.service.changes.shrink import shrink, try_shrink
from muster_coordinator.service.repairs.whatif import answered, asked
from muster_coordinator.service.repairs.whatif_bodies import WhatIfRequest, WhatIfView


async def extended(call: Call[Services, ExtendRequest, None]) -> ExtendedView:
    """Extend one reservation where it is, all members or none; or tell how long it could last."""
    services, moment = call.services, call.services.clock.moment()
    if call.body.dry_run:
        return await services.database.read(try_extend, moment, call.path["id"], call.body, call.guard)
    answer = await services.database.write(extend, moment, call.path["id"], call.body, call.guard)
    services.changed.beat()
    return answer


async def shrunk(call: Call[Services, ShrinkRequest, None]) -> ShrunkView:
    """Let members of one gang go; or tell which would."""
    services, moment = call.services, call.services.clock.moment()
    if call.body.dry_run:
        return await services.database.read(try_shrink, moment, call.path["id"], call.body, call.guard)
    answer = await services.database.write(shrink, moment, call.path["id"], call.body, services.index, call.guard)
    services.changed.beat()
    return answer


async def foretold(call: Call[Services, WhatIfRequest, None]) -> WhatIfView:
    """Answer what a loss of nodes would do; nothing is changed."""
    services = call.services
    question = await services.database.read(asked, services.clock.moment(), call.body, services.index)
    return await asyncio.to_thread(answered, question)
