"""Reasons to hold that are states, not events: each is raised by a reading that shows it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from muster_agent.core.marks import Mark
from muster_agent.core.readings import GpuReading, KernelLogReading, NodeReading, NvmlStatus
from muster_agent.core.xids import ClearsBy

RECOVERY_ACTIONS: Final = {
    1: "GPU reset",
    2: "node reboot",
    3: "drain of peer-to-peer traffic",
    4: "drain, then GPU reset",
    5: "recovery of the IMEX domain",
    6: "bus reset",
    7: "system reboot",
}
"""What the driver may ask for. Source: NVML field 230; value 0 is none."""

_NODE_WIDE_ACTIONS: Final = frozenset({2, 5, 7})  # a reboot takes all GPUs, an IMEX domain spans them

_NVML_CODES: Final[dict[NvmlStatus, int]] = {
    "driverNotLoaded": 9,
    "libraryMissing": 12,
    "driverMismatch": 18,
    "hung": 10,  # NVML's own code for a call that ran out of time
    "error": 999,
}


@dataclass(frozen=True, slots=True)
class Moment:
    """When a reading was taken."""

    unix_ms: int  # for people
    boot_ms: int  # for decisions
    boot_id: str

    def mark(
        self,
        cause: str,
        code: int | None,
        clears_by: ClearsBy,
        message: str,
        *,
        uuid: str | None = None,
        pci: str | None = None,
        node_wide: bool = False,
    ) -> Mark:
        """Make a mark that begins now."""
        return Mark(
            uuid, pci, cause, code, self.unix_ms, clears_by, message, self.boot_id, self.boot_ms, node_wide=node_wide
        )


def node_conditions(reading: NodeReading, kernel_log: KernelLogReading, moment: Moment) -> Iterator[Mark]:
    """Yield what holds the whole node: no data is not good health."""
    if reading.nvml != "ok":
        message = reading.message or f"NVML does not answer: {reading.nvml}"
        yield moment.mark("nvmlDown", _NVML_CODES[reading.nvml], "nvmlOk", message)
    if reading.events == "down" and kernel_log.status == "down":
        message = "neither NVML events nor the kernel log can be read: faults would pass unseen"
        yield moment.mark("monitoringDown", None, "monitoringOk", message)


def lost_conditions(missing: tuple[str, ...], moment: Moment) -> Iterator[Mark]:
    """Yield a mark for each GPU that should be there and does not answer."""
    for uuid in missing:
        yield moment.mark("deviceLost", None, "deviceSeen", "the GPU was seen before and does not answer", uuid=uuid)


def gpu_conditions(uuid: str, gpu: GpuReading, moment: Moment) -> Iterator[Mark]:
    """Yield what a GPU that answers says against itself."""
    if gpu.recovery_action:
        yield action_asked(uuid, gpu.pci, gpu.recovery_action, moment)
    if gpu.remap_pending:
        message = "memory to be taken out of use waits for a GPU reset"
        yield moment.mark("rowRemap", None, "remapNotPending", message, uuid=uuid)
    if gpu.remap_failed:
        message = "a row remap failed: the GPU's memory needs repair"
        yield moment.mark("rowRemapFailure", None, "operator", message, uuid=uuid)
    if gpu.memory_health and gpu.memory_health.sram_exceeded:
        message = "more uncorrectable SRAM errors than the maker's limit: the GPU is due for replacement"
        yield moment.mark("sramErrors", None, "operator", message, uuid=uuid)


def ecc_rose(uuid: str, by: int, moment: Moment) -> Mark:
    """Return the mark of uncorrectable memory errors that no XID told of; `by` is how many."""
    message = f"{by} new uncorrectable memory errors"
    return moment.mark("eccErrors", None, "recoveryActionNone", message, uuid=uuid)


def suspect(uuid: str, code: int, moment: Moment) -> Mark:
    """Return the mark of a GPU at which programs of several tenants fail."""
    message = "programs of three assignments, not all one tenant's, failed on it within a day"
    return moment.mark("suspect", code, "operator", message, uuid=uuid)


ACCEPTABLE: Final = frozenset({"rowRemapFailure", "sramErrors"})
"""Conditions that last for good, and that an operator may accept."""


def action_asked(uuid: str | None, pci: str | None, action: int, moment: Moment) -> Mark:
    """Return the mark of a recovery action, 1 or more, that the driver asks for at one GPU."""
    name = RECOVERY_ACTIONS.get(action, f"action {action}")
    return moment.mark(
        "recoveryAction",
        action,
        "recoveryActionNone",
        f"the driver asks for: {name} (GPU {uuid or pci})",
        uuid=uuid,
        pci=pci,
        node_wide=action in _NODE_WIDE_ACTIONS,
    )
