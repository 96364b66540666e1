"""Bodies of maintenance windows. Instants in answers are integers, milliseconds UTC."""

from typing import Annotated, Literal

from pydantic import Field

from muster_coordinator.service.bodies import Labels, WhenText
from muster_shared.codec import Count, Message, Request, Text

MaintenanceState = Literal["declared", "blocked", "booked", "begun", "ended", "cancelled"]


class MaintenanceRequest(Request):
    """Nodes that are to be mended, and when. Name them, or the labels that they carry."""

    pool_id: Annotated[Text | None, Field(description="Of the selector; the pool named default when absent")] = None
    nodes: Annotated[list[Text], Field(max_length=4096, description="Ids or names")] = []
    node_selector: Labels = {}
    start: Annotated[WhenText | Count | None, Field(description="RFC 3339, epoch ms, +2h or now; now when absent")] = (
        None
    )
    duration: Annotated[WhenText | None, Field(description="90s, 30m, 12h, 3d or ISO 8601")] = None
    end: Annotated[WhenText | Count | None, Field(description="Instead of duration")] = None
    reason: Annotated[Text, Field(min_length=1, description="Why, for whoever finds their booking moved")]


class InTheWay(Message):
    """A reservation that keeps maintenance from booking a node."""

    reservation_id: str
    state: str
    start: Count
    end: Count
    reason: str  # why it is not moved, or that it will be
    moves_to: list[str] = []  # names of all its nodes after the move, where one is possible


class MaintenanceNodeView(Message):
    """One node of a maintenance window."""

    node_id: str
    node_name: str
    booked: bool  # False while somebody is in the way; nobody new is let in all the same
    in_the_way: list[InTheWay] = []


class MaintenanceView(Message):
    """A maintenance window, or what declaring one now would do."""

    id: str | None = None  # absent in a preview
    pool_id: str
    reason: str
    state: MaintenanceState
    start: Count
    end: Count
    nodes: list[MaintenanceNodeView]
    version: Count
    created: Count
    ended: Count | None = None
