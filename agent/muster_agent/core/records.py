"""Values of the binding machine: records on disk, memory of this process, acts and their outcomes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

from muster_agent.core.desired import Desired, Fence, Order
from muster_shared.wire import Hold

RecordState = Literal["binding", "bound", "unbinding", "released", "failed"]


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


class Progress(Enum):
    """How far this process came with a record since its last write. A crash forgets it, and that is safe."""

    UNTOUCHED = "untouched"  # read from disk: nobody has looked at its artefacts
    BEGUN = "begun"  # this process wrote the record and has yet to grant what it says
    GRANTED = "granted"  # granted and read back, not yet written
    SOUND = "sound"  # bound, artefacts seen as they should be
    TROUBLED = "troubled"  # the last grant or look went wrong
    REVOKED = "revoked"  # nothing of it is left


@dataclass(frozen=True, slots=True)
class Memory:
    """What this process knows of a record beyond the file."""

    progress: Progress = Progress.UNTOUCHED
    at_boot_ms: int = 0  # when it was last seen sound
    trouble: str | None = None  # why the last grant failed
    failures: int = 0  # acts that failed in a row
    failure: str | None = None  # what the last of them said
    retry_boot_ms: int = 0  # no act on this record before


_NOTHING: Final = Memory()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the senses say now: devices seen, holds, the node's fabric domain."""

    devices: frozenset[str]
    holds: tuple[Hold, ...] = ()
    fabric_domain: str | None = None


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
class Forget:
    """Delete the record's file."""

    allocation_id: str


Act = SaveFence | Save | Grant | Verify | Revoke | Forget


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an act ended."""

    boot_ms: int
    trouble: str | None = None  # None: done, durably
