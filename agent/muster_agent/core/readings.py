"""What drivers read, as values: one reading of all GPUs, one fault event, one look at the host."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from muster_shared.wire import Fabric, MemoryHealth, Uuid

_TEXT_MAX: Final = 256  # the wire's Text
_PCI: Final = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.[0-9a-f])?", re.IGNORECASE)

NvmlStatus = Literal["ok", "driverNotLoaded", "libraryMissing", "driverMismatch", "hung", "error"]


Slowdown = Literal["hwSlowdown", "hwThermal", "powerBrake", "swThermal"]
"""Why a GPU runs slower than it could; a mere power cap is how GPUs are meant to run, and none of these."""

Daemon = Literal["fabricManager", "imex"]
"""A service beside the driver that a fabric needs."""


@dataclass(frozen=True, slots=True)
class MigReading:
    """One MIG instance of a GPU at one moment."""

    uuid: Uuid  # opaque: nothing is read out of it
    profile: str  # such as 1g.10gb
    slices: int  # compute slices, at least 1
    memory_mib: int = 0
    gpu_instance: int = 0
    compute_instance: int = 0


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. A field that its driver does not offer is None; the scan goes on."""

    uuid: Uuid | None  # None where the GPU is lost before it was ever identified
    pci: str  # as `pci_address` writes it; empty where NVML could not even tell the place
    model: str = ""
    memory_mib: int = 0
    island: int = 0  # GPUs of one number reach each other over NVLink
    numa: int | None = None
    fabric: Fabric | None = None
    lost: bool = False  # NVML says lost, reset required, or not found
    recovery_action: int | None = None  # field 230: 0 none .. 7 system reboot
    remap_pending: bool = False
    remap_failed: bool = False
    memory_health: MemoryHealth | None = None  # `corrected` is the full count here
    links: int = 0  # NVLinks that the GPU has
    links_down: tuple[int, ...] = ()  # of them, by number, rising
    peers_cut: tuple[str, ...] = ()  # PCI addresses of GPUs that links lead to and no memory can be reached of, rising
    mig_mode: bool = False
    mig_slices_max: int = 0  # compute slices of the whole GPU; 0 where MIG is off or unknown to it
    mig: tuple[MigReading, ...] = ()
    persistence: bool | None = None
    slowdowns: tuple[Slowdown, ...] = ()
    pids: tuple[int, ...] = ()  # host processes that NVML knows on it and /proc knows too, rising
    error: str | None = None  # the first call that failed in a way that matters, for people


@dataclass(frozen=True, slots=True)
class NodeReading:
    """All GPUs at one moment, or why there are none."""

    nvml: NvmlStatus
    gpus: tuple[GpuReading, ...] = ()
    driver_version: str | None = None
    message: str | None = None  # for people: what to do about it
    events: Literal["ok", "partial", "down"] = "down"  # are NVML events registered on all, some, no GPUs
    daemons_down: tuple[Daemon, ...] = ()  # of those that this host needs, the ones that do not run


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """One fault that a source told of. The same fault usually arrives from both sources.

    kind: `xid` is a GPU's fault, `sxid` an NVSwitch's. `changed` is none: NVML says that the next reading will differ.
    """

    source: Literal["nvml", "kernelLog"]
    code: int  # the XID or SXid; 79 for a "fallen off the bus" line without one; 999 unknown; 0 of what only changed
    uuid: Uuid | None  # at least one of uuid and pci is known; an NVSwitch has its PCI address only
    pci: str | None
    boot_ms: int  # boot clock, milliseconds
    seq: int | None = None  # the kernel log's own number: rises within a boot, survives a restart of the agent
    instance: str | None = None  # MIG instance, as `instance_name` writes it; None is the whole GPU
    fatal: bool | None = None  # the severity word of 144-150; None where the source does not tell
    recovery_action: int | None = None  # the new value an XID 154 line names
    text: str = ""
    detail: str = ""  # of an NVLink 5 fault: unit, link and sub-code, for people
    kind: Literal["xid", "sxid", "changed"] = "xid"
    count: int = 1  # how often it struck, where a source tells of a burst at once
    live: bool = True  # told as it happened; else from the log of a time when the agent may not have looked


@dataclass(frozen=True, slots=True)
class KernelLogReading:
    """Whether the kernel log can be read, and how much of it was lost unread."""

    status: Literal["ok", "down"]
    message: str | None = None  # for people, when it is down
    gaps: int = 0  # times the ring was overwritten before it was read


@dataclass(frozen=True, slots=True)
class HostReading:
    """What the operating system says of the host."""

    hostname: str
    machine_id: str
    boot_id: str
    cpus: int
    memory_mib: int


def pci_address(text: str) -> str | None:
    """Write a PCI address one way, `dddd:bb:dd`, so that equal places are equal texts.

    NVML writes `00000009:01:00.0`, the kernel `0009:01:00`; a domain may need more than four digits.

    Args:
        text: Any of these forms; a missing domain is 0, the function is left out.

    Returns:
        Lower-case hexadecimal, or None where `text` is no PCI address.
    """
    found = _PCI.fullmatch(text)
    if found is None:
        return None
    domain, bus, device = (int(part or "0", 16) for part in found.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}"


def instance_name(gpu_instance: int, compute_instance: int | None) -> str:
    """Name a MIG instance the same whichever source told of it: `gi/ci`, or `gi/` for all of the GPU instance."""
    return f"{gpu_instance}/{'' if compute_instance is None else compute_instance}"


def one_line(text: str) -> str:
    """Make any text fit the wire's `Text`: what cannot be printed becomes a space, at most 256 characters stay."""
    return "".join(char if char.isprintable() else " " for char in text)[:_TEXT_MAX]
