"""Bodies of the HTTP API about series: reservations that come again by a rule."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.types import StringConstraints

from muster_coordinator.service.bodies import Asked, DeviceRequest, GangRequest, Labels, WhenText
from muster_shared.codec import Count, Message, Request, Text

Occurs = Annotated[
    WhenText | Count,
    Field(
        description="When the rule has it begin: RFC 3339 or epoch ms, or its day as YYYY-MM-DD on the series' clocks"
    ),
]


class SeriesRequest(Asked):
    """A gang that comes again."""

    rule: Annotated[Text, Field(description="RRULE of RFC 5545 without DTSTART, such as FREQ=WEEKLY;BYDAY=MO")]
    at: Annotated[
        str,
        StringConstraints(pattern=r"^(?:[01][0-9]|2[0-3]):[0-5][0-9]$"),
        Field(description="Wall time at which an occurrence begins, such as 08:00"),
    ]
    zone: Annotated[Text, Field(description="IANA time zone on whose clocks the rule is read")] = "UTC"
    first_day: Annotated[
        Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")] | None,
        Field(description="Day from which the rule counts, YYYY-MM-DD; today when absent"),
    ] = None
    duration: Annotated[WhenText, Field(description="Of each occurrence: 90s, 30m, 12h, 3d or ISO 8601")]
    latest_start_after: Annotated[
        WhenText | None,
        Field(description="Give an occurrence up that could not start so long after its time; at its end when absent"),
    ] = None


class OccurrenceRequest(Request):
    """Which occurrence is meant."""

    occurrence: Occurs


class OccurrenceChange(OccurrenceRequest):
    """Another window for one occurrence; the others stay as they are."""

    start: Annotated[
        WhenText | Count | None, Field(description="RFC 3339, epoch ms, +2h or now; as it was when absent")
    ] = None
    duration: Annotated[WhenText | None, Field(description="90s, 30m, 12h, 3d or ISO 8601; as it was when absent")] = (
        None
    )


class SeriesEnd(Request):
    """From when on a series has no occurrence any more."""

    since: Annotated[
        WhenText | Count | None,
        Field(alias="from", description="RFC 3339, epoch ms, +2h, or a day as YYYY-MM-DD; now when absent"),
    ] = None


class OccurrenceView(Message):
    """One occurrence, and the reservation that it is once it has been made."""

    occurrence: Count  # when the rule has it begin, ms UTC
    wall: str  # the same on the clocks of its series' zone, RFC 3339
    start: Count  # when it does begin: another instant where it was changed
    end: Count
    state: Literal["planned", "skipped", "pending", "placed", "binding", "active", "ending", "ended"]
    reservation_id: str | None = None  # absent while it is planned, or skipped
    reason: str | None = None  # why it waits, or why it ended


class SeriesView(Message):
    """A series, and what comes of it next."""

    id: str
    tenant_id: str
    pool_id: str
    name: str | None = None
    state: Literal["active", "ended"]
    reason: str | None = None  # why it ended: Completed, Cancelled
    rule: str
    zone: str
    first: str  # wall time of its first occurrence, on the clocks of `zone`
    duration: Count  # ms
    latest_start_after: Count | None = None  # ms
    until: Count | None = None  # no occurrence begins from then on; absent where nobody knows yet
    devices: list[DeviceRequest]
    gang: GangRequest
    node_selector: Labels
    labels: Labels
    occurrences: list[OccurrenceView]  # that are not over, the soonest first
    skipped: list[Count]  # occurrences ahead that nobody wants, ms UTC
    made_until: Count  # every occurrence before has a reservation, or none for good
    version: Count
    created: Count
    ended: Count | None = None
    idempotency_key: str | None = None
