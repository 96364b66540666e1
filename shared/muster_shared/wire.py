"""Every message between agent and coordinator.

The agent sends absolute state (`Report`) and holds a long poll for its `DesiredState`. Whatever is missing from
a desired state must not stay bound; whatever is missing from a report is not bound. Both ends compare fences:
`epoch` and `rev` at the agent, `(bootId, seq)`, `appliedRev` and `generation` at the coordinator.

Source: design, section 6.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from muster_shared.codec import Count, Label, Message, Text

REPORT_BYTES_MAX: Final = 256 * 1024
"""Anything above is refused unread. The sickest node, 16 split GPUs with every hold, says 100 KiB; a well one 300 B."""

GPUS_MAX: Final = 16
"""No host of today carries more."""

FINDINGS_MAX: Final = 32
"""What a person can take in of one node, and a report can carry."""

FABRIC_DOMAIN: Final = "fabric.domain"
"""The inventory label that names the NVLink fabric: `<cluster uuid>.<clique id>`."""

Uuid = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{3,79}$")]
"""A device's UUID as NVML prints it, `GPU-...` or `MIG-...`."""

LabelValue = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:/ -]{0,128}$")]
"""A label's value. Blank values are legal and form no group."""

Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]{1,253}$")]
"""A host by name or by number, as IMEX takes it."""

FabricState = Literal["notSupported", "notStarted", "inProgress", "completed", "unknown"]
FabricReason = Literal[
    "notSupported", "inProgress", "error", "zeroUuid", "gpusDisagree", "gpuMissing", "unhealthy", "settling"
]
"""Why a node has no `fabric.domain`. `settling`: one good read so far, the second decides."""


FabricFault = Literal[
    "degradedBandwidth", "routeRecovery", "routeUnhealthy", "accessTimeout", "incorrectSystemGuid",
    "incorrectChassis", "noPartition", "tooFewLinks", "gpuFirmware", "wrongLocation", "gpuState",
    "incorrectConfiguration", "managerDisconnected",
]  # fmt: skip
"""What a fabric's health mask can say against a GPU."""


class Clique(Message):
    """One clique of a GPU, as drivers of 2026 list them by kind."""

    kind: Count  # 0 unicast pointer, 1 multicast pointer, 2 and 3 logical endpoints
    id: Count


class Fabric(Message):
    """What one GPU says of the NVLink fabric it is registered with."""

    state: FabricState
    status: Count = 0  # an NVML return code, meaningful only when completed; 0 is success
    cluster: Text | None = None  # lower-case uuid, 8-4-4-4-12
    clique: Count | None = None
    health: Literal["notApplicable", "healthy", "unhealthy", "limitedCapacity"] = "notApplicable"
    health_mask: Count = 0
    faults: list[FabricFault] = []  # what the mask says against it
    cliques: list[Clique] = []  # all that it is in, where the driver tells of more than the one above


class MigInstance(Message):
    """One MIG instance of a GPU, as the driver has it."""

    uuid: Uuid  # opaque: nothing is read out of it
    profile: Annotated[str, Field(pattern=r"^[0-9a-z.+]{1,32}$")]  # such as 1g.10gb
    slices: Annotated[Count, Field(ge=1)]  # compute slices: its share is `slices` of the GPU's `mig_slices_max`
    memory_mib: Count


class MemoryHealth(Message):
    """What a GPU's memory has been through. A count that its driver does not offer is 0."""

    ecc: bool | None = None  # on, off, or None where the GPU has none
    corrected: Count = 0  # since the driver was loaded, rounded down to a power of two: it climbs on healthy GPUs too
    uncorrected: Count = 0  # since the driver was loaded
    uncorrected_ever: Count = 0
    remapped_rows: Count = 0  # after uncorrectable errors
    retired_pages: Count = 0  # of GPUs that remap no rows
    sram_exceeded: bool = False  # more SRAM errors than the maker's limit for replacement


class Gpu(Message):
    """One GPU of a node. A GPU that was seen before and is gone stays in the list with `seen` false."""

    uuid: Uuid
    pci: Text  # dddd:bb:dd
    model: Text
    memory_mib: Count
    island: Count = 0  # GPUs of one number reach each other over NVLink
    numa: Count | None = None
    seen: bool = True
    fabric: Fabric | None = None
    mig_mode: bool = False  # on: the GPU offers its instances, and is none itself
    mig_slices_max: Count = 0  # compute slices of the whole GPU, 7 on most; 0 where it knows no MIG
    mig: Annotated[list[MigInstance], Field(max_length=16)] = []
    memory_health: MemoryHealth | None = None
    links: Count = 0  # NVLinks that it has
    links_down: list[Count] = []  # of them, by number
    persistence: bool | None = None  # the driver stays loaded while nobody uses the GPU


class Monitoring(Message):
    """Which eyes are open. `down` on both event sources means that health is unknown, not good."""

    nvml: Literal["ok", "driverNotLoaded", "libraryMissing", "driverMismatch", "hung", "error"]
    events: Literal["ok", "partial", "down"]
    kernel_log: Literal["ok", "down"]
    message: Text | None = None


class Finding(Message):
    """Something that an operator should know and that holds nothing by itself."""

    cause: Text  # "fabricChanged", "fabricInProgress", "xid", "nvlinkDown", "slowdown", ...
    device: Uuid | None = None
    code: Count | None = None
    count: Count = 0  # of what strikes again and again: at least as often, in powers of two
    since_ms: Count
    former: Text | None = None  # of a value that changed: what it was
    now: Text | None = None  # and what it is
    message: Text


class Inventory(Message):
    """All facts of a node that rarely change. An unchanged inventory is reported by its hash only."""

    gpus: Annotated[list[Gpu], Field(max_length=GPUS_MAX)]
    labels: Annotated[dict[Label, LabelValue], Field(max_length=64)]
    fabric_reason: FabricReason | None = None  # set exactly when the label `fabric.domain` is absent
    monitoring: Monitoring
    hostname: Text
    driver_version: Text | None = None
    cpus: Count = 0
    memory_mib: Count = 0
    findings: Annotated[list[Finding], Field(max_length=FINDINGS_MAX)] = []


class Hold(Message):
    """Why a device may not be booked. Without a device it holds the whole node."""

    device: Uuid | None = None
    cause: Text  # "xid", "recoveryAction", "rowRemap", "deviceLost", "nvmlDown", ...
    code: Count | None = None
    since_ms: Count
    clears_by: Text  # "gpuResetVerified", "nodeRebootVerified", "recoveryActionNone", "probeOk", "operator", ...
    message: Text | None = None


BindState = Literal["binding", "bound", "unbinding", "blocked", "failed", "lostByReboot"]
EXPOSED: Final[frozenset[BindState]] = frozenset({"binding", "bound", "unbinding"})
"""Bind states in which the tenant may be able to reach the devices."""


class AssignmentStatus(Message):
    """What the node did about one assignment. A released assignment is absent."""

    allocation_id: Text
    generation: Count
    state: BindState
    reason: Text | None = None
    guard_armed: bool = False  # its end is armed outside the agent's process


class Report(Message):
    """The whole truth of a node at one moment."""

    boot_id: Text
    seq: Count  # rises within a boot: milliseconds of the boot clock, so that no file has to keep it
    agent_version: Text
    epoch: Count = 0  # the highest coordinator epoch the agent has obeyed
    applied_rev: Count  # the desired state that `assignments` reflects
    inventory_hash: Text
    inventory: Inventory | None = None
    holds: Annotated[list[Hold], Field(max_length=256)]
    assignments: Annotated[list[AssignmentStatus], Field(max_length=256)]


class ReportAnswer(Message):
    """What the coordinator did with a report."""

    accepted: bool
    reason: Text | None = None  # "stale" when a newer report was seen: nothing was changed
    now_ms: Count
    heartbeat_ms: Count
    want_inventory: bool = False  # the hash is not known here: send the inventory at once


class Assignment(Message):
    """One allocation that the node shall bind. Times are remaining: the node's wall clock decides nothing."""

    allocation_id: Text
    reservation_id: Text
    generation: Count
    tenant_id: Text
    devices: Annotated[list[Uuid], Field(min_length=1)]  # GPUs or MIG instances
    shared: list[Uuid] = []  # of these GPUs, those of which it has a share in time: other assignments may name them too
    starts_in_ms: int  # negative once the start has passed
    ends_in_ms: int
    grant_for_ms: int  # the node lets go by itself when this is over: never more than `ends_in_ms`
    topology_key: Text | None = None
    topology_value: Text | None = None
    imex_channel: Count | None = None
    imex_peers: Annotated[list[Address], Field(max_length=128)] = []  # all nodes of the domain, in its order
    preempt_in_ms: int | None = None  # set once notice was given: the tenant must be gone then
    kill_grace_ms: Count = 10_000  # between TERM and KILL for what the tenant leaves behind


class Clearance(Message):
    """An operator's word that a hold is over. It ends that hold, not one that is raised later."""

    device: Uuid | None = None
    cause: Text
    code: Count | None = None
    since_ms: Count  # of the hold that is meant


class DesiredState(Message):
    """All that a node shall have bound, at one revision."""

    cluster_id: Text
    node_id: Text
    epoch: Count
    rev: Count
    now_ms: Count
    assignments: list[Assignment]
    cleared: list[Clearance] = []


class Registration(Message):
    """A node asks to join."""

    name: Label
    machine_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{8,64}$")]
    pool: Label | None = None  # by name; the coordinator's default pool when absent
    agent_version: Text
    gpus: Annotated[tuple[Uuid, ...], Field(max_length=GPUS_MAX)] = ()  # tells a cloned host from the real one


class Credential(Message):
    """The coordinator's answer: who the node is from now on. The token is shown once."""

    cluster_id: Text
    node_id: Text
    token: Text
    heartbeat_ms: Count
