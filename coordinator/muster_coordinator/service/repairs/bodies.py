"""Bodies of a repair that somebody asks for."""

from typing import Annotated

from pydantic import Field

from muster_coordinator.service.bodies import ReservationView
from muster_shared.codec import Message, Request, Text


class RepairRequest(Request):
    """Repair now what is at risk, whatever the horizon, and move members off nodes that are named."""

    avoid: Annotated[
        list[Text], Field(max_length=4096, description="Names or ids of nodes that it shall not be on afterwards")
    ] = []
    dry_run: Annotated[bool, Field(description="Only tell who would take over")] = False


class RepairView(Message):
    """What a repair does, or would do."""

    sound: bool  # there is nothing to repair
    fits: bool  # somebody can take over, or nobody has to
    leaving: list[str] = []  # names of nodes
    joining: list[str] = []
    message: str


class RepairedView(ReservationView):
    """A reservation after a repair, or as it is where that was only tried."""

    repair: RepairView
