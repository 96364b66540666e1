"""Reads all GPUs. One missing function, one lost GPU, one unsupported field cost just themselves.

Source: the NVML reference; which return codes mean what, as public reports of drivers have shown.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from muster_agent.core.islands import Links, islands
from muster_agent.core.readings import GpuEvent, GpuReading, NodeReading, NvmlStatus, Slowdown
from muster_agent.drivers.daemons import Daemons
from muster_agent.drivers.nvml.calls import RECOVERY_ACTION, Calls, address_of, nvml, place_of, text_of
from muster_agent.drivers.nvml.fabric import FabricReader
from muster_agent.drivers.nvml.links import cuts, wiring_of
from muster_agent.drivers.nvml.memory import memory_of
from muster_agent.drivers.nvml.mig import split_of
from muster_agent.drivers.nvml.watch import Watch
from muster_agent.drivers.pci import gpus_of_the_driver

_TROUBLE: Final[dict[int, tuple[NvmlStatus, str]]] = {
    9: ("driverNotLoaded", "the NVIDIA driver is not loaded; the agent looks again by itself"),
    12: ("libraryMissing", "libnvidia-ml.so.1 is not installed; the agent looks again by itself"),
    18: ("driverMismatch", "NVML library and kernel module are of different versions: reload the driver or reboot"),
}
_SLOWDOWNS: Final[dict[int, Slowdown]] = {0x8: "hwSlowdown", 0x40: "hwThermal", 0x80: "powerBrake", 0x20: "swThermal"}


@dataclass(frozen=True, slots=True)
class _Found:
    reading: GpuReading
    handle: Any
    links: Links


class Scanner:
    """Keeps NVML initialised and reads all GPUs. One thread only."""

    def __init__(self, tell: Callable[[GpuEvent], None]) -> None:
        """Begin without touching NVML.

        Args:
            tell: Receives each fault, from another thread.
        """
        self._ready = False
        self._identities: dict[int, tuple[str | None, str]] = {}  # by handle: what a GPU was before it was lost
        self._fabric = FabricReader()
        self._watch = Watch(tell)
        self._daemons = Daemons()

    def read(self) -> NodeReading:
        """Read everything. NVML that does not start is tried again with the next reading."""
        try:
            if not self._ready:
                nvml.nvmlInit()
                self._ready = True
            version = text_of(nvml.nvmlSystemGetDriverVersion())
            count: int = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self._let_go()
            status, message = _TROUBLE.get(error.value, ("error", f"NVML: {error}"))
            return NodeReading(status, message=message)
        found = [self._gpu(index) for index in range(count)]
        alive = [one for one in found if one.reading.uuid and not one.reading.lost]
        events = self._watch.over({one.reading.uuid: one.handle for one in alive if one.reading.uuid})
        return NodeReading(
            "ok",
            _with_lost(_wired(found)),
            driver_version=version,
            events=events,
            daemons_down=self._daemons.down(),
        )

    def _let_go(self) -> None:
        if self._ready:
            self._watch.stop()
            Calls().ask("nvmlShutdown")
        self._ready, self._fabric = False, FabricReader()
        self._identities.clear()

    def _gpu(self, index: int) -> _Found:
        calls = Calls()
        handle = calls.ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            return _Found(GpuReading(None, "", lost=True, error=calls.error), None, Links())
        uuid, pci = self._identity(handle, calls)
        size = calls.ask("nvmlDeviceGetMemoryInfo", handle)
        memory_mib = size.total >> 20 if size else 0
        memory, wiring, split = memory_of(handle, calls), wiring_of(handle, calls), split_of(handle, memory_mib, calls)
        persistence = calls.ask("nvmlDeviceGetPersistenceMode", handle)
        reading = GpuReading(
            uuid=uuid,
            pci=pci,
            model=text_of(calls.ask("nvmlDeviceGetName", handle) or ""),
            memory_mib=memory_mib,
            numa=_numa(handle, calls),
            fabric=self._fabric.read(handle),
            recovery_action=calls.field(handle, RECOVERY_ACTION),
            remap_pending=memory.remap_pending,
            remap_failed=memory.remap_failed,
            memory_health=memory.health,
            links=wiring.count,
            links_down=wiring.down,
            mig_mode=split.mode,
            mig_slices_max=split.slices_max,
            mig=split.instances,
            persistence=None if persistence is None else bool(persistence),
            slowdowns=_slowdowns(handle, calls),
            pids=_pids(handle, calls),
        )
        return _Found(replace(reading, lost=calls.lost or uuid is None, error=calls.error), handle, wiring.ends)

    def _identity(self, handle: Any, calls: Calls) -> tuple[str | None, str]:  # noqa: ANN401 - an NVML handle
        uuid, place = calls.ask("nvmlDeviceGetUUID", handle), calls.ask("nvmlDeviceGetPciInfo", handle)
        known_uuid, known_pci = self._identities.get(address_of(handle), (None, ""))
        identity = text_of(uuid) if uuid else known_uuid, place_of(place) if place else known_pci
        self._identities[address_of(handle)] = identity
        return identity


def _numa(handle: Any, calls: Calls) -> int | None:  # noqa: ANN401 - an NVML handle
    words = calls.ask("nvmlDeviceGetMemoryAffinity", handle, 2, nvml.NVML_AFFINITY_SCOPE_NODE)
    nodes = sum(int(word) << (64 * number) for number, word in enumerate(words or ()))
    return (nodes & -nodes).bit_length() - 1 if nodes else None


def _slowdowns(handle: Any, calls: Calls) -> tuple[Slowdown, ...]:  # noqa: ANN401 - an NVML handle
    reasons = calls.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # what drivers before 535 call the same
        reasons = calls.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return tuple(name for bit, name in _SLOWDOWNS.items() if (reasons or 0) & bit)


def _pids(handle: Any, calls: Calls) -> tuple[int, ...]:  # noqa: ANN401 - an NVML handle
    told: set[int] = set()
    for kind in ("Compute", "Graphics", "MPSCompute"):
        # The third version came with driver 510, and its struct is not that of the second.
        versions = (calls.ask(f"nvmlDeviceGet{kind}RunningProcesses_v{version}", handle) for version in (3, 2))
        told.update(process.pid for process in next((found for found in versions if found is not None), ()))
    # Some drivers' lists hold garbage, such as 0 and 2**32 - 1.
    return tuple(sorted(pid for pid in told if Path(f"/proc/{pid}").exists()))


def _wired(found: list[_Found]) -> list[GpuReading]:
    """Return the readings with what only all GPUs together tell: who reaches whom."""
    alive = {one.reading.pci: one for one in found if one.reading.uuid and one.reading.pci and not one.reading.lost}
    whole = {pci: one for pci, one in alive.items() if not one.reading.mig_mode}
    cut = cuts({pci: one.links for pci, one in whole.items()}, {pci: one.handle for pci, one in whole.items()})
    numbers = islands({pci: replace(one.links, cut=cut.get(pci, frozenset())) for pci, one in alive.items()})
    return [
        replace(
            one.reading,
            island=numbers.get(one.reading.pci, 0),
            peers_cut=tuple(sorted(cut.get(one.reading.pci, ()))),
        )
        for one in found
    ]


def _with_lost(gpus: list[GpuReading]) -> tuple[GpuReading, ...]:
    """Add the GPUs that the driver owns and NVML does not list; they are the ones that it could not place."""
    calls = Calls()
    told = (
        calls.ask("nvmlGetExcludedDeviceInfoByIndex", number)
        for number in range(calls.ask("nvmlGetExcludedDeviceCount") or 0)
    )
    excluded = {place_of(one.pciInfo) for one in told if one}  # by the operator's own wish
    listed = excluded.union(gpu.pci for gpu in gpus)
    lost = [
        GpuReading(None, pci, lost=True, error="NVML does not list it")
        for pci in gpus_of_the_driver()
        if pci not in listed
    ]
    placeless = [gpu for gpu in gpus if gpu.uuid is None and not gpu.pci]
    placed = [gpu for gpu in gpus if gpu.uuid is not None or gpu.pci]
    return (*placed, *lost, *placeless[len(lost) :])
