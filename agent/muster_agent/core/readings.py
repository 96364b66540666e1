"""What drivers read, as values: one reading of all GPUs, one fault event, one look at the host."""

from dataclasses import dataclass
from typing import Literal

from muster_shared.wire import Fabric

NvmlStatus = Literal["ok", "driverNotLoaded", "libraryMissing", "driverMismatch", "hung", "error"]


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. A field that its driver does not offer is None; the scan goes on."""

    uuid: str | None  # None where the GPU is lost before it was ever identified
    pci: str  # dddd:bb:dd, lower case hex, at least 4 digits of domain: compared as numbers, printed like the kernel
    model: str = ""
    memory_mib: int = 0
    island: int = 0  # GPUs of one number reach each other over NVLink
    numa: int | None = None
    fabric: Fabric | None = None
    lost: bool = False  # NVML says lost, reset required, or not found
    recovery_action: int | None = None  # field 230: 0 none .. 7 system reboot
    remap_pending: bool = False
    remap_failed: bool = False
    error: str | None = None  # the first call that failed in a way that matters, for people


@dataclass(frozen=True, slots=True)
class NodeReading:
    """All GPUs at one moment, or why there are none."""

    nvml: NvmlStatus
    gpus: tuple[GpuReading, ...] = ()
    driver_version: str | None = None
    message: str | None = None  # for people: what to do about it
    events: Literal["ok", "partial", "down"] = "down"  # are NVML events registered on all, some, no GPUs


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """One fault that a source told of. The same fault usually arrives from both sources."""

    source: Literal["nvml", "kernelLog"]
    code: int  # the XID; 79 for a "fallen off the bus" line without one; 999 unknown
    uuid: str | None  # at least one of uuid and pci is known
    pci: str | None
    boot_ms: int  # boot clock, milliseconds
    instance: str | None = None  # MIG instance, as "gi/ci"; None is the whole GPU
    fatal: bool | None = None  # the severity word of 144-150; None where the source does not tell
    recovery_action: int | None = None  # the new value an XID 154 line names
    text: str = ""


@dataclass(frozen=True, slots=True)
class HostReading:
    """What the operating system says of the host."""

    hostname: str
    machine_id: str
    boot_id: str
    cpus: int
    memory_mib: int
