"""The operation by which somebody asks for a repair."""

from typing import Final

from muster_coordinator.api.handlers import repairs
from muster_coordinator.api.operation import Operation
from muster_coordinator.service.repairs.bodies import RepairedView, RepairRequest
from muster_shared.errors import Code

REPAIRS: Final = (
    Operation(
        "POST",
        "/v1/reservations/{id}/repair",
        "Repair a reservation now, or show plan B",
        repairs.repaired,
        body=RepairRequest,
        answer=RepairedView,
        errors=(Code.NOT_FOUND, Code.CONFLICT),
        action="compute:reservation:repair",
    ),
)
