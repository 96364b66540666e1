"""Bodies of the HTTP API for people and programs. Messages of the agents stand in `muster_shared.wire`.

Instants in answers are integers, milliseconds UTC; in requests also RFC 3339, `now` or `+2h`. GPU amounts are whole
GPUs here, milli-GPU everywhere inside.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic.types import StringConstraints

from muster_shared.codec import Count, Label, Message, Request, Text
from muster_shared.wire import Finding, Gpu, Hold, LabelValue, Monitoring

WhenText = Annotated[str, StringConstraints(min_length=1, max_length=40)]
Positive = Annotated[Count, Field(ge=1)]
Labels = Annotated[dict[Label, LabelValue], Field(max_length=64)]


class DeviceRequest(Request):
    """Devices that **each** node of the gang gives."""

    device_class: Annotated[
        Literal["gpu", "mig", "slot"],
        Field(alias="class", description="Whole GPUs, MIG instances, or shares of a GPU in time"),
    ] = "gpu"
    count: Annotated[Positive, Field(le=64, description="Devices on each node")]
    topology: Annotated[
        Literal["any", "nvlink-all", "numa"],
        Field(description="nvlink-all: all on one NVLink island of the node; numa: all on one NUMA node"),
    ] = "any"
    profile: Annotated[
        Annotated[str, StringConstraints(pattern=r"^[0-9a-z.+]{1,32}$")] | None,
        Field(description="Of MIG instances, such as 1g.10gb; any when absent"),
    ] = None
    model: Annotated[Text | None, Field(description="A word of the model's name, such as H100")] = None
    memory_gib: Annotated[
        Annotated[Positive, Field(le=1_048_576)] | None, Field(description="At least this much memory on each device")
    ] = None


class TopologyKey(Request):
    """One more label on which the nodes of a gang agree: they must, or they do where that can be had."""

    key: Label
    mode: Literal["required", "preferred"] = "required"


class Segment(Request):
    """Parts of a gang that each agree on a label, where the whole gang need not."""

    size: Annotated[Positive, Field(le=4096, description="Nodes of each segment; it divides the gang")]
    topology_key: Annotated[Label, Field(description="A node label, such as fabric.domain")]


class GangRequest(Request):
    """How many nodes, and the labels on which they agree."""

    size: Annotated[Positive, Field(le=4096)] = 1
    topology_key: Annotated[Label | None, Field(description="A node label, such as fabric.domain or rack")] = None
    topology_keys: Annotated[
        list[TopologyKey],
        Field(
            max_length=8, description="More labels; of the preferred ones the first that can be had, narrowest first"
        ),
    ] = []
    segment: Annotated[Segment | None, Field(description="Such as 16 nodes of one NVL72 rack each")] = None


class Asked(Request):
    """What a tenant asks for, whenever. `devices` describes one node; `gang.size` nodes each give all of it."""

    tenant_id: Label
    pool_id: Annotated[Text | None, Field(description="Id or name; the pool named default when absent")] = None
    devices: Annotated[list[DeviceRequest], Field(min_length=1, max_length=4)]
    gang: GangRequest = GangRequest()
    node_selector: Labels = {}
    on_member_loss: Annotated[
        Literal["notify", "replace", "release"],
        Field(
            description="When a node of the running gang is surely dead: tell only, put another in its place, or end it"
        ),
    ] = "notify"
    idempotency_key: Annotated[str | None, StringConstraints(pattern=r"^[\x21-\x7e]{1,128}$")] = None
    labels: Labels = {}
    name: Text | None = None


class ReservationRequest(Asked):
    """A gang for one window."""

    start: Annotated[WhenText | Count | None, Field(description="RFC 3339, epoch ms, +2h or now; now when absent")] = (
        None
    )
    duration: Annotated[WhenText | None, Field(description="90s, 30m, 12h, 3d or ISO 8601")] = None
    end: Annotated[WhenText | Count | None, Field(description="Instead of duration")] = None
    latest_start: Annotated[
        WhenText | Count | None, Field(description="Give up when nothing could be placed to start by then")
    ] = None


class Blocker(Message):
    """Why some nodes could not take part, and until when that is known to last."""

    reason: str  # a filter's name: `booked`, `held`, `cordoned`, `unreachable`, `labelMissing`, ...
    nodes: Count
    until: Count | None = None  # ms UTC; absent where nobody knows


class Condition(Message):
    """Why a reservation is where it is."""

    type: Literal["Unschedulable"]
    reason: str  # doesNotFit, neverFits, lostRace, quotaExceeded, BookingRepairFailed
    message: str
    blockers: list[Blocker] = []


class MemberView(Message):
    """One allocation of a reservation, or one member of a previewed gang."""

    allocation_id: str | None = None
    node_id: str
    node_name: str
    devices: list[str]  # UUIDs
    topology: dict[str, str] = {}  # labels that its node must keep, its segment's included
    generation: Count | None = None
    bind_state: str | None = None  # reserved, binding, bound, unbinding, released, blocked, failed, lostByReboot
    bind_reason: str | None = None
    granted_until: Count | None = None  # where its node has not yet been told of a later end: it lets go then
    overdue: bool = False  # its node has not confirmed the release in time: see `muster nodes get`


class ReservationView(Message):
    """A reservation as it is stored, with every member."""

    id: str
    tenant_id: str
    pool_id: str
    name: str | None = None
    state: Literal["pending", "placed", "binding", "active", "ending", "ended"]
    reason: str | None = None  # why it ended: Completed, Released, Cancelled, Preempted, Expired, Lost
    condition: Condition | None = None
    at_risk: list[str] = []  # reasons; empty when every member is sound
    start: Count | None = None
    end: Count | None = None
    duration: Count  # ms
    latest_start: Count | None = None
    devices: list[DeviceRequest]
    gang: GangRequest
    topology: dict[str, str] = {}  # labels on which the whole gang was placed, and their values
    topology_value: str | None = None  # the first of them
    node_selector: Labels = {}
    on_member_loss: Literal["notify", "replace", "release"] = "notify"
    labels: Labels = {}
    generation: Count
    seed: Count = 0  # that decided among equals
    version: Count
    protected_until: Count | None = None
    created: Count
    activated: Count | None = None
    ended: Count | None = None  # when the last member had let go; `end` is what was promised
    members: list[MemberView]
    binding: str | None = None  # the first bound allocation
    series_id: str | None = None  # that it is an occurrence of
    occurrence: Count | None = None  # when its series has it begin, ms UTC; absent for one that was skipped
    idempotency_key: str | None = None


class Yes(Message):
    """A request near the asked one that fits, as things stand."""

    change: Literal["start", "duration", "gangSize", "topology"]  # what is different from what was asked
    start: Count
    end: Count
    gang_size: Count
    topology: dict[str, str] = {}  # labels on which the whole gang would agree
    quota_milli: Count  # milli-GPU that it would be charged, all nodes together


class PreviewView(Message):
    """What placing the request now would do. Nothing is held."""

    fits: bool
    start: Count
    end: Count
    topology: dict[str, str] = {}
    topology_value: str | None = None
    members: list[MemberView] = []
    quota_milli: Count | None = None  # milli-GPU that it would be charged
    quota_limit_milli: Count | None = None  # that its tenant may hold at once; absent where there is no limit ...
    quota_used_milli: Count | None = None  # ... and holds now
    condition: Condition | None = None
    nearest: list[Yes] = []  # what would fit, where this does not; other topology values, where it does
    as_of: Count


class MaintenanceMark(Message):
    """The maintenance that a node is in, or that comes next."""

    id: str
    reason: str
    start: Count
    end: Count


class OverdueRelease(Message):
    """A release that a node has not confirmed in time."""

    allocation_id: str
    reservation_id: str
    since: Count  # when the node was told to let go


class NodeView(Message):
    """A node, what it reported, and what people decided about it."""

    id: str
    name: str
    pool_id: str
    labels: dict[str, str]  # inventory and operator labels together
    operator_labels: dict[str, str]
    fabric_reason: str | None = None
    reachable: bool
    intent: Literal["schedulable", "cordoned", "draining"]
    drained: Count | None = None  # when it was found empty, while it is draining
    flapping: bool = False  # it turned bad too often within a day: the last choice for new work
    overdue: list[OverdueRelease] = []  # what it keeps although it should have let go
    leased: bool
    last_report: Count | None = None
    agent_version: str | None = None
    driver_version: str | None = None
    monitoring: Monitoring | None = None
    gpus: list[Gpu]
    holds: list[Hold]
    findings: list[Finding] = []  # what an operator should know and what holds nothing
    gpus_total: Count
    gpus_free: Count  # right now
    offers: dict[str, int] = {}  # what can be booked on it at all: gpu, slot, mig and its profile
    free: dict[str, int] = {}  # of that, what can be had right now
    slots: dict[str, int] = {}  # shares that an operator cut GPUs into, by UUID; `*` for all others
    maintenance: MaintenanceMark | None = None
    rev: Count
    applied_rev: Count


class PoolView(Message):
    """A pool and its rollup, in whole GPUs, at one instant."""

    id: str
    name: str
    policy: dict[str, Any]
    nodes: Count
    total: Count
    allocatable: Count
    reserved: Count  # placed, counted once for each GPU that has any future booking
    active: Count
    free: Count  # allocatable and not booked now
    held: dict[str, int]  # by cause
    largest_gang: dict[str, int]  # by value of fabric.domain: nodes that are wholly free now
    as_of: Count


class EventView(Message):
    """An immutable fact."""

    id: str
    seq: Count
    type: str  # reservation.placed, reservation.repaired, node.hold_added, ...
    at: Count
    pool_id: str | None = None
    subject: str  # the id that it is about
    version: Count
    data: dict[str, Any]


class Page(Message):
    """A page of a list. `nextCursor` is absent on the last one."""

    items: list[Any]
    next_cursor: str | None = None


class NodeSlots(Request):
    """Shares that GPUs are cut into."""

    shares: Annotated[Count, Field(le=64, description="2 to 64 shares of each GPU, or 0 for whole GPUs")]
    device: Annotated[Text | None, Field(description="UUID of one GPU; all of the node when absent")] = None

    @field_validator("shares")
    @classmethod
    def _is_no_single_share(cls, shares: int) -> int:
        if shares == 1:
            raise ValueError("one share is a whole GPU: say 0")
        return shares


class NodeLabels(Request):
    """Operator labels to set; a null value removes the label."""

    labels: Annotated[dict[Label, LabelValue | None], Field(min_length=1, max_length=64)]


class Reason(Request):
    """Why a person does this. It is kept with the event."""

    reason: Text | None = None


class PoolRequest(Request):
    """A new pool."""

    name: Label
