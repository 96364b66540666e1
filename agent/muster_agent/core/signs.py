"""Which signs a reading shows: of the fabric, of each GPU, of the services around them, of faults that struck.

Source: the agent's facts, section 1, rows that are to be reported and not to be held; cases A02, A04, A06, A09, A12.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from muster_agent.core.findings import Sign, at_least
from muster_agent.core.health import Health
from muster_agent.core.inventory import InventoryFold
from muster_agent.core.readings import Daemon, GpuReading, KernelLogReading, NodeReading, Slowdown
from muster_agent.core.suspects import suspected
from muster_agent.core.tallies import Tally
from muster_agent.core.xids import xid
from muster_shared.wire import FabricState

DAY_MS: Final = 86_400_000

FABRIC_WAIT_MS: Final = 300_000
"""A fabric of 72 GPUs comes up within two minutes; one that takes more than five does not come up by itself."""

_LASTS_MS: Final = 30_000  # design, section 12, `unhealthyAfter`: what comes and goes is no news
_GONE_MS: Final = 600_000  # and `healthyAfter`
_REMAPS_MANY: Final = 8  # uncorrectable ones; XID catalogue, entry 63: time for a person to look

_STUCK: Final[dict[FabricState, tuple[str, str]]] = {
    "inProgress": ("fabricInProgress", "is still in progress"),
    "notStarted": ("fabricNotStarted", "has not begun"),
}
_DAEMONS: Final[dict[Daemon, tuple[str, str]]] = {
    "fabricManager": ("fabricManagerDown", "nv-fabricmanager does not run: start nvidia-fabricmanager.service"),
    "imex": ("imexDown", "nvidia-imex does not run although hosts of its domain are named: start nvidia-imex.service"),
}
_SLOWDOWNS: Final[dict[Slowdown, str]] = {
    "hwSlowdown": "its hardware slows it down",
    "hwThermal": "it is too hot for its hardware",
    "powerBrake": "the power supply brakes it",
    "swThermal": "it is too hot for its driver",
}


def signs_of(
    reading: NodeReading, fold: InventoryFold, health: Health, kernel_log: KernelLogReading, now_ms: int, boot_ms: int
) -> list[Sign]:
    """Gather all signs of one reading.

    Args:
        reading: Of a working NVML or not.
        fold: The inventory after this reading.
        health: The faults after this reading.
        kernel_log: The other source of faults.
        now_ms: Wall clock, milliseconds UTC.
        boot_ms: Boot clock, milliseconds.
    """
    signs = [
        *fabric_signs(fold, reading),
        *node_signs(reading, kernel_log),
        *fault_signs(health.tallies, health.boot_id),
    ]
    for gpu in reading.gpus:
        if gpu.uuid and not gpu.lost:
            signs += gpu_signs(gpu)
    return [*signs, *suspicion_signs(suspected(health.strikes, health.boot_id, boot_ms, now_ms))]


def fabric_signs(fold: InventoryFold, reading: NodeReading) -> Iterator[Sign]:
    """Yield what the fabric shows, as the fold has it after this reading."""
    if fold.change:
        former, now = fold.change
        message = f"the GPUs were on fabric {former} and are on {now} now"
        yield Sign(0, "fabricChanged", message, former=former, now=now, gone_ms=DAY_MS)
    if fold.replaced:
        message = f"all GPUs are others than before, such as {fold.replaced[0]}: the hardware was replaced"
        yield Sign(0, "hardwareReplaced", message, count=len(fold.replaced), gone_ms=DAY_MS)
    states = [gpu.fabric.state for gpu in reading.gpus if gpu.fabric]
    for state, (cause, words) in _STUCK.items():
        if number := states.count(state):
            message = f"the NVLink fabric of {number} GPUs {words} after {FABRIC_WAIT_MS // 60_000} minutes"
            yield Sign(1, cause, f"{message}: look at the fabric manager", lasts_ms=FABRIC_WAIT_MS)


def node_signs(reading: NodeReading, kernel_log: KernelLogReading) -> Iterator[Sign]:
    """Yield what concerns the whole node."""
    for daemon in reading.daemons_down:
        cause, message = _DAEMONS[daemon]
        yield Sign(1, cause, message, lasts_ms=_LASTS_MS)
    if kernel_log.gaps:
        count = at_least(kernel_log.gaps)
        message = f"records of the kernel log were overwritten unread, at least {count} times"
        yield Sign(5, "kernelLogGap", message, count=count)


def gpu_signs(gpu: GpuReading) -> Iterator[Sign]:
    """Yield what one GPU that answers shows."""
    uuid = gpu.uuid
    if gpu.fabric and (gpu.fabric.faults or gpu.fabric.health in {"unhealthy", "limitedCapacity"}):
        message = f"fabric health {gpu.fabric.health}: {', '.join(gpu.fabric.faults) or 'no cause told'}"
        yield Sign(1, "fabricUnhealthy", message, uuid, code=gpu.fabric.health_mask)
    if gpu.peers_cut:
        message = f"its NVLinks are up, yet it cannot reach the memory of {', '.join(gpu.peers_cut)}"
        yield Sign(1, "p2pCut", message, uuid)
    if gpu.links_down:
        message = f"{len(gpu.links_down)} of {gpu.links} NVLinks are down: {', '.join(map(str, gpu.links_down))}"
        yield Sign(2, "nvlinkDown", message, uuid, lasts_ms=_LASTS_MS, gone_ms=_GONE_MS)
    if gpu.memory_health and gpu.memory_health.remapped_rows >= _REMAPS_MANY:
        message = f"{gpu.memory_health.remapped_rows} memory rows were remapped after uncorrectable errors"
        yield Sign(2, "manyRemaps", message, uuid)
    if gpu.slowdowns:
        message = "; ".join(_SLOWDOWNS[slowdown] for slowdown in gpu.slowdowns)
        yield Sign(3, "slowdown", message, uuid, lasts_ms=_LASTS_MS, gone_ms=_GONE_MS)
    if gpu.error and not gpu.lost:
        yield Sign(3, "readError", gpu.error, uuid, lasts_ms=_LASTS_MS, gone_ms=_GONE_MS)
    if gpu.persistence is False:
        message = "persistence mode is off: each first use waits for the driver (enable nvidia-persistenced)"
        yield Sign(4, "persistenceOff", message, uuid, lasts_ms=_LASTS_MS)


def fault_signs(tallies: Iterable[Tally], boot_id: str) -> Iterator[Sign]:
    """Yield what struck in this boot, whether or not it holds anything; MIG instances are counted with their GPU."""
    counts: dict[tuple[str, str, int], int] = {}
    fatal: set[tuple[str, int]] = set()
    for tally in tallies:
        if tally.boot_id == boot_id:
            key = (tally.kind, tally.place, tally.code)
            counts[key] = counts.get(key, 0) + tally.count
            if tally.fatal:
                fatal.add((tally.place, tally.code))
    for (kind, place, code), number in sorted(counts.items()):
        count = at_least(number)
        times = "once" if number == 1 else f"at least {count} times"
        if kind == "sxid":
            severity = "fatal" if (place, code) in fatal else "not fatal"
            message = f"NVSwitch {place}: SXid {code}, {severity}, {times} in this boot"
            yield Sign(1 if severity == "fatal" else 2, "sxid", message, code=code, count=count)
        else:
            device = place if place.startswith("GPU-") else None
            where = "" if device else f" (GPU at {place})"
            yield Sign(6, "xid", f"{xid(code).name}, {times} in this boot{where}", device, code, count)


def suspicion_signs(doubts: Mapping[str, int]) -> Iterator[Sign]:
    """Yield the GPUs at which programs keep failing, be they all of one tenant: a bug of theirs as likely as a fault.

    Args:
        doubts: UUID -> assignments that were hit.
    """
    for uuid, assignments in sorted(doubts.items()):
        message = f"programs of {assignments} assignments failed on it within a day"
        yield Sign(3, "suspect", message, uuid, count=assignments)
