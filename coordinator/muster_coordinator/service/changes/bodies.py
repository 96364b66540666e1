"""Bodies of the calls by which an owner changes a reservation: extend and shrink."""

from typing import Annotated, Literal

from pydantic import Field

from muster_coordinator.service.bodies import Positive, ReservationView, WhenText
from muster_shared.codec import Count, Message, Request, Text

_SIZE_MAX = 4096  # as of a gang


class ExtendRequest(Request):
    """How much longer: `by` a duration, or `until` an instant. A dry run may leave out both."""

    by: Annotated[WhenText | None, Field(description="90s, 30m, 12h, 3d or ISO 8601; each call adds it again")] = None
    until: Annotated[
        WhenText | Count | None,
        Field(description="RFC 3339, epoch ms or +2h; the same end again changes nothing"),
    ] = None
    dry_run: Annotated[bool, Field(description="Only tell whether it could, and how long at most")] = False


class Obstacle(Message):
    """What keeps a reservation from ending later."""

    kind: Literal["reservation", "maintenance", "maxDuration", "lookAhead", "calendarEnd"]
    message: str
    reservation_id: str | None = None  # only one of the same tenant
    maintenance_id: str | None = None
    node_name: str | None = None
    start: Count | None = None
    until: Count | None = None  # ms UTC, turnaround included


class ExtensionView(Message):
    """How long a reservation can be kept where it is, turnaround included in what stands behind it."""

    fits: bool  # what was asked; true where nothing was
    end: Count | None = None  # that was asked
    longest_end: Count  # never before the present end
    blocked_by: Obstacle  # from the longest end on


class ExtendedView(ReservationView):
    """A reservation after an extension, or as it is where that was only tried."""

    extension: ExtensionView


class ShrinkRequest(Request):
    """Which members of a gang leave: all but `to` of them, the worst first, or those that are named."""

    to: Annotated[
        Annotated[Positive, Field(le=_SIZE_MAX)] | None, Field(description="Nodes that stay; saying it again is fine")
    ] = None
    drop: Annotated[
        Annotated[list[Text], Field(min_length=1, max_length=_SIZE_MAX)] | None,
        Field(description="Names or ids of the nodes that leave"),
    ] = None
    dry_run: Annotated[bool, Field(description="Only tell which would leave")] = False


class ShrunkView(ReservationView):
    """A reservation after members have left, or as it is where that was only tried."""

    dropped: list[str]  # names of the nodes that leave
