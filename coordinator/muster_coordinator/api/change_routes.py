"""Operations by which reservations change, and the question what a loss of nodes would do to them."""

from typing import Final

from muster_coordinator.api.handlers import changes
from muster_coordinator.api.operation import Operation
from muster_coordinator.service.changes.bodies import ExtendedView, ExtendRequest, ShrinkRequest, ShrunkView
from muster_coordinator.service.repairs.whatif_bodies import WhatIfRequest, WhatIfView
from muster_shared.errors import Code

_REFUSED: Final = (Code.NOT_FOUND, Code.CONFLICT)

CHANGES: Final = (
    Operation(
        "POST",
        "/v1/reservations/{id}/extend",
        "Keep a reservation longer",
        changes.extended,
        body=ExtendRequest,
        answer=ExtendedView,
        errors=_REFUSED,
        action="compute:reservation:extend",
    ),
    Operation(
        "POST",
        "/v1/reservations/{id}/shrink",
        "Let members of a gang go",
        changes.shrunk,
        body=ShrinkRequest,
        answer=ShrunkView,
        errors=_REFUSED,
        action="compute:reservation:shrink",
    ),
    Operation(
        "POST",
        "/v1/capacity/whatif",
        "What would losing these nodes do?",
        changes.foretold,
        body=WhatIfRequest,
        answer=WhatIfView,
        errors=(Code.NOT_FOUND,),
        audience="operator",
        action="compute:capacity:whatif",
    ),
)
