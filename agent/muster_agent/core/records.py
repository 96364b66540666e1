"""Values of the binding machine: records on disk, memory of this process, acts and their outcomes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

from muster_agent.core.desired import Desired, Fence, Order
from muster_shared.wire import Hold

RecordState = Literal["binding", "bound", "unbinding", "released", "failed"]
EXPOSED: Final[frozenset[RecordState]] = frozenset({"binding", "bound", "unbinding"})
"""States in which a tenant may be able to reach the devices."""

KILL_GRACE_MS: Final = 10_000  # design, section 12, `killGrace`


@dataclass(frozen=True, slots=True)
class Instance:
    """Where a MIG instance is. Its UUID tells nothing, and its device nodes go by these numbers."""

    uuid: str
    gpu: str  # the UUID of the GPU that it is a part of
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class Record:
    """What this node did about one allocation. Each is a file; the file is written before the world is changed.

    binding: the tenant may reach the devices, half or wholly. bound: it can. unbinding: it still may.
    released: it cannot; a tombstone that keeps old orders out. failed: it cannot, and the bind is tried again.
    """

    allocation_id: str
    reservation_id: str
    generation: int
    tenant_id: str
    devices: tuple[str, ...]
    state: RecordState
    boot_id: str  # every `_boot_ms` counts from this boot and means nothing in another
    since_boot_ms: int  # when it came into its state
    end_boot_ms: int  # let go then, coordinator or not
    end_unix_ms: int  # told to the tenant
    topology_key: str | None = None
    topology_value: str | None = None
    reason: str | None = None
    attempts: int = 0  # binds that failed since the last that worked
    retry_boot_ms: int = 0  # failed: not tried again before
    shared: tuple[str, ...] = ()  # of `devices`, those of which it has a share in time
    instances: tuple[Instance, ...] = ()  # of `devices`, the MIG instances, as they were found
    imex_channel: int | None = None
    imex_peers: tuple[str, ...] = ()  # the domain's nodes in order; empty leaves the daemon's own list alone
    kill_grace_ms: int = KILL_GRACE_MS  # between TERM and KILL
    warned: bool = False  # its preempt hooks have run

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs it touches, whole or in part, by UUID."""
        parents = {instance.uuid: instance.gpu for instance in self.instances}
        return tuple(dict.fromkeys(parents.get(uuid, uuid) for uuid in self.devices))


class Progress(Enum):
    """How far this process came with a record since its last write. A crash forgets it, and that is safe."""

    UNTOUCHED = "untouched"  # read from disk: nobody has looked at its artefacts
    BEGUN = "begun"  # this process wrote the record and has yet to grant what it says
    GRANTED = "granted"  # granted and read back, not yet written
    SOUND = "sound"  # bound, artefacts seen as they should be
    TROUBLED = "troubled"  # the last grant or look went wrong
    REVOKED = "revoked"  # no new process can reach the devices
    EMPTIED = "emptied"  # nor does an old one hold them


@dataclass(frozen=True, slots=True)
class Memory:
    """What this process knows of a record beyond the file."""

    progress: Progress = Progress.UNTOUCHED
    at_boot_ms: int = 0  # when it was last seen sound
    trouble: str | None = None  # why the last grant failed
    failures: int = 0  # acts that failed in a row
    failure: str | None = None  # what the last of them said
    retry_boot_ms: int = 0  # no act on this record before
    looked_boot_ms: int | None = None  # when the devices of an order were last looked at
    foreign: str | None = None  # who held them then
    evicting_boot_ms: int | None = None  # when its processes were first told to end
    reset: bool = False  # the reset that a hold asked for was tried
    warned: bool = False  # its preempt hooks have run, which is yet to be written
    guard_armed: bool = False  # its end is armed outside this process, and was seen to be


_NOTHING: Final = Memory()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the senses say now: devices seen, holds, the node's fabric domain, who computes."""

    devices: frozenset[str]  # GPUs that are not in MIG mode, and MIG instances
    holds: tuple[Hold, ...] = ()
    fabric_domain: str | None = None
    instances: tuple[Instance, ...] = ()
    pids: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])  # by GPU, as NVML has them
    read_boot_ms: int = 0  # when NVML said so

    def computing(self, devices: Iterable[str]) -> tuple[int, ...]:
        """Return the processes that NVML saw on whole GPUs. Those of one MIG instance it cannot tell from others."""
        return tuple(sorted({pid for uuid in devices for pid in self.pids.get(uuid, ())}))


@dataclass(frozen=True, slots=True)
class State:
    """The whole machine. `records` and `fence` are on disk, the rest is this process's own."""

    boot_id: str
    records: Mapping[str, Record]  # by allocation id
    fence: Fence
    complete: bool = True  # no record was lost to a bad file: absence means released
    desired: Desired | None = None  # None until the first one of this process: nothing new is bound before
    applied_rev: int = 0
    memory: Mapping[str, Memory] = field(default_factory=dict[str, Memory])
    fence_retry_boot_ms: int = 0

    def memory_of(self, allocation_id: str) -> Memory:
        """Return what this process knows of an allocation, which may be nothing."""
        return self.memory.get(allocation_id, _NOTHING)

    def order_for(self, record: Record) -> Order | None:
        """Return the order for exactly this allocation and generation."""
        order = self.desired.orders.get(record.allocation_id) if self.desired else None
        return order if order and order.generation == record.generation else None

    def wants(self, record: Record) -> bool:
        """Tell whether the desired state names exactly this allocation and generation."""
        return self.order_for(record) is not None

    def alone_on(self, record: Record) -> tuple[str, ...]:
        """Return the devices of a record that no other tenant can reach now: what runs there is the record's own."""
        others = {
            uuid
            for other in self.records.values()
            if other.allocation_id != record.allocation_id and other.state in EXPOSED
            for uuid in other.devices
        }
        return tuple(uuid for uuid in record.devices if uuid not in others)

    def lost(self, record: Record) -> bool:
        """Tell whether a bind of an earlier boot is void: its tenant and its artefacts are gone."""
        return record.boot_id != self.boot_id and record.state in {"binding", "bound"}


@dataclass(frozen=True, slots=True)
class SaveFence:
    """Write the fence. Durable before the outcome is told."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class Save:
    """Write the record. Durable before the outcome is told."""

    record: Record


@dataclass(frozen=True, slots=True)
class Grant:
    """Let the tenant reach the devices, and read back that it can. Repeating it is harmless."""

    record: Record


@dataclass(frozen=True, slots=True)
class Verify:
    """Look whether what was granted is still there; an outcome without trouble means it is."""

    record: Record


@dataclass(frozen=True, slots=True)
class Revoke:
    """Take the devices away from the tenant. Repeating it is harmless, also where nothing was granted."""

    record: Record


@dataclass(frozen=True, slots=True)
class Look:
    """Look whether a process is on devices that are about to be handed over; an outcome without trouble: none is."""

    record: Record  # as it will be
    devices: tuple[str, ...]  # those that nobody shares now
    pids: tuple[int, ...]  # that NVML saw on them
    pids_boot_ms: int  # and when: a process that began later is another one under the same number


@dataclass(frozen=True, slots=True)
class Evict:
    """End the processes that are left on devices of an unbind: TERM, or KILL. No trouble means that none is left."""

    record: Record
    devices: tuple[str, ...]
    pids: tuple[int, ...]
    pids_boot_ms: int
    force: bool  # the grace is over


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset empty GPUs because a hold asks for it, and see them answer again."""

    record: Record
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell the tenant, by the operator's hooks, that it will be preempted."""

    record: Record
    preempt_boot_ms: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete the record's file."""

    allocation_id: str


Touch = Grant | Verify | Revoke | Evict | Reset | Warn
"""Acts on a record that change the world or look at it, and may take their time."""

Act = SaveFence | Save | Look | Touch | Forget


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an act ended."""

    boot_ms: int
    trouble: str | None = None  # None: done, durably
    guard_armed: bool = False  # after a grant or a look: whether the guard stands by
