"""The part of the API's table that is about maintenance windows."""

from typing import Final

from muster_coordinator.api.handlers import maintenance
from muster_coordinator.api.operation import Operation
from muster_coordinator.service.bodies import Page
from muster_coordinator.service.maintenance.bodies import MaintenanceRequest, MaintenanceView
from muster_shared.errors import Code

_MISSING: Final = (Code.NOT_FOUND,)
_REFUSED: Final = (Code.NOT_FOUND, Code.CONFLICT)

MAINTENANCE_OPERATIONS: Final = (
    Operation(
        "POST",
        "/v1/maintenance",
        "Take nodes out of the calendar for a while",
        maintenance.create,
        body=MaintenanceRequest,
        answer=MaintenanceView,
        status=201,
        errors=_REFUSED,
        audience="operator",
        action="compute:maintenance:create",
    ),
    Operation(
        "POST",
        "/v1/maintenance/preview",
        "Who would be moved by this maintenance, and who would stay?",
        maintenance.preview,
        body=MaintenanceRequest,
        answer=MaintenanceView,
        errors=_REFUSED,
        audience="operator",
        action="compute:maintenance:preview",
    ),
    Operation(
        "GET",
        "/v1/maintenance",
        "List maintenance windows",
        maintenance.listed,
        query=maintenance.MaintenanceQuery,
        answer=Page,
        errors=_MISSING,
        audience="operator",
        action="compute:maintenance:list",
    ),
    Operation(
        "GET",
        "/v1/maintenance/{id}",
        "Show a maintenance window",
        maintenance.shown,
        answer=MaintenanceView,
        errors=_MISSING,
        audience="operator",
        action="compute:maintenance:read",
    ),
    Operation(
        "POST",
        "/v1/maintenance/{id}/cancel",
        "Take back a maintenance window that has not begun",
        maintenance.cancelled,
        answer=MaintenanceView,
        errors=_REFUSED,
        audience="operator",
        action="compute:maintenance:cancel",
    ),
    Operation(
        "POST",
        "/v1/maintenance/{id}/end",
        "Give the nodes back before the window is over",
        maintenance.ended,
        answer=MaintenanceView,
        errors=_REFUSED,
        audience="operator",
        action="compute:maintenance:end",
    ),
)
