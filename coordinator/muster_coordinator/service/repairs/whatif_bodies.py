"""Bodies of the question what a loss of nodes would do."""

from typing import Annotated, Literal

from pydantic import Field

from muster_coordinator.service.bodies import WhenText
from muster_shared.codec import Count, Label, Message, Request, Text
from muster_shared.wire import LabelValue


class Lost(Request):
    """Nodes that would be gone: one, or all with a label."""

    key: Annotated[Label, Field(description="A node label, or `node`")]
    value: Annotated[LabelValue, Field(description="The label's value; after `node` a name or an id")]


class WhatIfRequest(Request):
    """Which nodes would be lost, from when on, and for how long."""

    pool_id: Annotated[Text | None, Field(description="Id or name; the pool named default when absent")] = None
    lose: Annotated[list[Lost], Field(min_length=1, max_length=64)]
    at: Annotated[WhenText | Count | None, Field(description="RFC 3339, epoch ms, +2h or now; now when absent")] = None
    duration: Annotated[WhenText | None, Field(description="For so long; for good when absent")] = None


Outcome = Literal["survives", "moves", "fails", "degraded", "ends"]


class FateView(Message):
    """What would become of one booking that has members on lost nodes."""

    reservation_id: str
    tenant_id: str
    name: str | None = None
    state: str
    start: Count
    end: Count
    gang_size: Count
    outcome: Outcome
    lost: list[str]  # names of its nodes that would be lost
    nodes: list[str]  # names of the nodes that it would have afterwards
    message: str


class WhatIfView(Message):
    """What a loss of nodes would do. Nothing is changed by asking."""

    pool_id: str
    at: Count
    until: Count | None = None  # absent where the nodes do not come back
    lost: list[str]  # names of the nodes
    outcomes: dict[str, Count]  # how many of the bookings below survive, move, fail, are degraded, or end
    untouched: Count  # other bookings of the pool: they have nothing on these nodes
    items: list[FateView]  # in the order in which they would be repaired
    as_of: Count
