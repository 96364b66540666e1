"""Tells whether the process lives, whether it can serve, and how everything stands in figures."""

from aiohttp import hdrs, web

from muster_coordinator.api.exposition import CONTENT_TYPE
from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service.nodes.join import is_writable
from muster_shared.codec import Message


class HealthView(Message):
    """One word."""

    status: str


async def alive(_call: Call[Services, None, None]) -> HealthView:
    """Answer as long as the event loop turns."""
    return HealthView(status="ok")


async def ready(call: Call[Services, None, None]) -> HealthView:
    """Answer when the database can be read, and written: on a full disk only reads go on."""
    await call.services.database.write(is_writable)
    return HealthView(status="ready")


async def metrics(call: Call[Services, None, None]) -> web.Response:
    """Answer all metrics, at most a second old."""
    services = call.services
    text = await services.exposition.text(services.database, services.clock, services.index, services.counts)
    return web.Response(body=text, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})
