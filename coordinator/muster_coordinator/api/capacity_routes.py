"""The part of the API's table that is about capacity over time."""

from typing import Final

from muster_coordinator.api.handlers import capacity
from muster_coordinator.api.operation import Operation
from muster_coordinator.service.capacity.bodies import OutlookQuery, OutlookView, TimelineQuery, TimelineView
from muster_shared.errors import Code

CAPACITY_OPERATIONS: Final = (
    Operation(
        "GET",
        "/v1/capacity/timeline",
        "How many GPUs are booked and free, up to a week ahead",
        capacity.shown,
        query=TimelineQuery,
        answer=TimelineView,
        errors=(Code.NOT_FOUND,),
        action="compute:capacity:read",
    ),
    Operation(
        "GET",
        "/v1/capacity/outlook",
        "How many GPUs, and how large a gang, up to 120 days ahead",
        capacity.far_ahead,
        query=OutlookQuery,
        answer=OutlookView,
        errors=(Code.NOT_FOUND,),
        action="compute:capacity:read",
    ),
)
