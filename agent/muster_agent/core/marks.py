"""One reason to hold a GPU, from the fault that began it to the proof that ends it."""

from dataclasses import dataclass, replace
from typing import Final

from muster_agent.core.readings import GpuReading
from muster_agent.core.xids import ClearsBy

PROBE_MS: Final = 30_000
"""Two good readings so far apart are a passed probe: one alone may be the moment between two faults."""

OBSERVE_MS: Final = 600_000
"""How long a fault that nobody knows is watched before a probe may end its hold."""

_STRICTNESS: Final[tuple[ClearsBy, ...]] = (
    "remapNotPending",
    "deviceSeen",
    "nvmlOk",
    "monitoringOk",
    "probeOk",
    "recoveryActionNone",
    "gpuResetVerified",
    "nodeRebootVerified",
    "operator",
)
"""Rules by the proof that each asks for, the least first."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Why a GPU, or the node, may not be booked. Kept over restarts; at most one per place, cause and code."""

    uuid: str | None  # None: the whole node, or a GPU that is known only by its place
    pci: str | None
    cause: str
    code: int | None
    since_ms: int  # wall clock of the first fault, for people
    clears_by: ClearsBy
    message: str
    boot_id: str  # the boot of the latest fault
    boot_ms: int  # boot clock of the latest fault
    node_wide: bool = False  # found at one GPU, holds them all
    away: bool = False  # the GPU did not answer at some time since the latest fault
    acted: bool = False  # the driver asked for a recovery action since the latest fault
    good_boot_ms: int | None = None  # boot clock of the first of an unbroken run of good readings since

    @property
    def place(self) -> str:
        """Where it is: the UUID, else the PCI address, else empty for the node."""
        return self.uuid or self.pci or ""

    @property
    def key(self) -> tuple[str, str, int]:
        """What is unique among marks, in the order in which they are listed."""
        return (self.place, self.cause, -1 if self.code is None else self.code)

    @property
    def device(self) -> str | None:
        """The UUID that the hold names; None holds the whole node, as a GPU does that nobody can name."""
        return None if self.node_wide else self.uuid

    def again(self, later: "Mark") -> "Mark":
        """Return this mark after the same fault came again: proofs of repair count anew, `since` stays.

        Whichever of the two asks for more proof is believed.
        """
        strictest = max(self.clears_by, later.clears_by, key=_STRICTNESS.index)
        return replace(later, since_ms=self.since_ms, clears_by=strictest, message=self.message)

    def seen_away(self) -> "Mark":
        """Return this mark after a reading in which its GPU did not answer."""
        return replace(self, away=True, good_boot_ms=None)

    def seen(self, gpu: GpuReading, boot_id: str, boot_ms: int) -> "Mark | None":
        """Return this mark after its GPU answered, or None where that ends it.

        Source: the rules of the XID catalogue. A recovery action that went back to none is the driver's own word
        that the repair is done, and outranks what the table would wait for.
        """
        acted = self.acted or bool(gpu.recovery_action)
        if not _is_well(gpu):
            return replace(self, acted=acted, good_boot_ms=None)
        mark = replace(self, acted=acted, good_boot_ms=boot_ms if self.good_boot_ms is None else self.good_boot_ms)
        return None if _is_over(mark, gpu, boot_id, boot_ms) else mark


def _is_over(mark: Mark, gpu: GpuReading, boot_id: str, boot_ms: int) -> bool:
    rebooted = boot_id != mark.boot_id
    probed = mark.good_boot_ms is not None and boot_ms - mark.good_boot_ms >= PROBE_MS
    match mark.clears_by:
        case "nodeRebootVerified":
            return rebooted or mark.acted
        case "gpuResetVerified":
            return rebooted or mark.acted or mark.away
        case "recoveryActionNone":
            return rebooted or mark.acted or mark.away or (probed and gpu.recovery_action == 0)
        case "probeOk":
            return probed and (rebooted or boot_ms - mark.boot_ms >= OBSERVE_MS)
        case _:
            return False  # an operator, or the condition itself, ends the others


def _is_well(gpu: GpuReading) -> bool:
    """Tell whether a reading shows a GPU that works: the same checks after reset and reboot."""
    fabric_up = gpu.fabric is None or gpu.fabric.state in {"notSupported", "completed"}
    return not gpu.lost and not gpu.recovery_action and not gpu.remap_pending and not gpu.remap_failed and fabric_up
