"""Tells whether the process lives, and whether it can serve."""

from muster_coordinator.api.operation import Call
from muster_coordinator.api.services import Services
from muster_coordinator.service.join import is_writable
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
