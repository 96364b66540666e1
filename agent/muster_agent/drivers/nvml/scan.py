"""Reads all GPUs. One missing function, one lost GPU, one unsupported field cost just themselves.

Source: the NVML reference; which return codes mean what, as public reports of drivers have shown.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from muster_agent.core.islands import Links, islands
from muster_agent.core.readings import GpuEvent, GpuReading, NodeReading, NvmlStatus
from muster_agent.drivers.nvml.calls import Calls, address_of, nvml, place_of, recovery_action_of, text_of
from muster_agent.drivers.nvml.fabric import FabricReader
from muster_agent.drivers.nvml.watch import Watch
from muster_agent.drivers.pci import gpus_of_the_driver

_TROUBLE: Final[dict[int, tuple[NvmlStatus, str]]] = {
    9: ("driverNotLoaded", "the NVIDIA driver is not loaded; the agent looks again by itself"),
    12: ("libraryMissing", "libnvidia-ml.so.1 is not installed; the agent looks again by itself"),
    18: ("driverMismatch", "NVML library and kernel module are of different versions: reload the driver or reboot"),
}
_GPU, _SWITCH = 0, 2  # what an NVLink leads to


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
        numbers = islands({one.reading.pci: one.links for one in alive if one.reading.pci})
        gpus = [replace(one.reading, island=numbers.get(one.reading.pci, 0)) for one in found]
        events = self._watch.over({one.reading.uuid: one.handle for one in alive if one.reading.uuid})
        return NodeReading("ok", _with_lost(gpus), driver_version=version, events=events)

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
        memory, remap = calls.ask("nvmlDeviceGetMemoryInfo", handle), calls.ask("nvmlDeviceGetRemappedRows", handle)
        # GPUs before Ampere retire whole pages instead of remapping rows.
        pending = bool(remap[2]) if remap else calls.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle) == 1
        reading = GpuReading(
            uuid=uuid,
            pci=pci,
            model=text_of(calls.ask("nvmlDeviceGetName", handle) or ""),
            memory_mib=memory.total >> 20 if memory else 0,
            numa=_numa(handle, calls),
            fabric=self._fabric.read(handle),
            recovery_action=recovery_action_of(handle, calls),
            remap_pending=pending,
            remap_failed=bool(remap and remap[3]),
            pids=_pids(handle, calls),
        )
        links = _links(handle, calls)
        return _Found(replace(reading, lost=calls.lost or uuid is None, error=calls.error), handle, links)

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


def _links(handle: Any, calls: Calls) -> Links:  # noqa: ANN401 - an NVML handle
    peers: set[str] = set()
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            active = nvml.nvmlDeviceGetNvLinkState(handle, link)
        except nvml.NVMLError:
            break  # no such link, or no NVLink at all
        kind = calls.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) if active else None
        if kind == _SWITCH:
            return Links(to_switch=True)
        if kind == _GPU and (place := calls.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)):
            peers.add(place_of(place))
    return Links(peers=frozenset(peers))


def _pids(handle: Any, calls: Calls) -> tuple[int, ...]:  # noqa: ANN401 - an NVML handle
    kinds = ("Compute", "Graphics", "MPSCompute")
    told = {p.pid for kind in kinds for p in calls.ask(f"nvmlDeviceGet{kind}RunningProcesses", handle) or ()}
    # Some drivers' lists hold garbage, such as 0 and 2**32 - 1.
    return tuple(sorted(pid for pid in told if Path(f"/proc/{pid}").exists()))


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
