"""What the agent would see and report on this host, explained: no coordinator is asked and nothing is written."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from muster_agent.clock import Clock
from muster_agent.config import Config
from muster_agent.core.health import Health
from muster_agent.core.inventory import SETTLE_MS, InventoryFold
from muster_agent.core.readings import HostReading, KernelLogReading, NodeReading
from muster_agent.door.tables import hold_lines, inventory_lines
from muster_agent.drivers.bind import BindDriver
from muster_agent.drivers.device_nodes import DeviceNodes
from muster_agent.drivers.gpu import GpuDriver
from muster_agent.drivers.sentry import SYSTEMD_DIR
from muster_agent.holders.processes import Allowed, ProcessTable
from muster_shared.wire import Hold, Inventory

_ADVICE: Final = {
    "driverNotLoaded": "load the NVIDIA driver: modprobe nvidia",
    "libraryMissing": "libnvidia-ml.so.1 is not found: install the driver's libraries, or set nvml_library_dir",
    "driverMismatch": "the loaded module and the libraries are of two versions: reboot, or load the new module",
    "hung": "a call into NVML does not return: look at the kernel log; a reboot may be needed",
    "error": "NVML answers with an error",
}


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check found."""

    host: HostReading
    inventory: Inventory
    holds: list[Hold]
    strangers: dict[str, list[str]]  # GPU -> who is on it
    troubles: list[str]  # each with its cure

    def document(self, drivers: Iterable[BindDriver]) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "hostname": self.host.hostname,
            "machineId": self.host.machine_id,
            "bootId": self.host.boot_id,
            "inventory": self.inventory.model_dump(mode="json", by_alias=True),
            "holds": [hold.model_dump(mode="json", by_alias=True) for hold in self.holds],
            "strangers": self.strangers,
            "bindDrivers": {type(driver).__name__: driver.isolates for driver in drivers},
            "troubles": self.troubles,
        }

    def lines(self, drivers: Iterable[BindDriver]) -> Iterable[str]:
        """Return it for people."""
        yield f"host         {self.host.hostname}, machine {self.host.machine_id}, boot {self.host.boot_id}"
        yield from inventory_lines(self.inventory)
        yield from hold_lines(self.holds)
        yield ""
        told = ", ".join(f"{type(driver).__name__}{' (isolates)' if driver.isolates else ''}" for driver in drivers)
        yield f"bind drivers {told}"
        for gpu, who in self.strangers.items():
            yield f"in use       {gpu}: {', '.join(who)}: a bind would fail as foreignProcess"
        yield ""
        yield from self.troubles or ["All is well: the agent would report this host as it is shown."]


async def examined(config: Config, host: HostReading, gpus: GpuDriver, clock: Clock) -> Findings:
    """Look at the host as the agent does, twice, so that the fabric's label has settled."""
    kernel_log = _kernel_log(config.kernel_log)
    fold, health = InventoryFold(), Health()
    reading = NodeReading("error")
    for pause_ms in (0, SETTLE_MS):
        await clock.sleep(pause_ms)
        reading = await gpus.read()
        boot_ms = clock.boot_ms()
        fold = fold.after(reading, host, boot_ms, kernel_log)
        health = health.after_reading(reading, clock.unix_ms(), host.boot_id, boot_ms, kernel_log)
        if reading.nvml != "ok":
            break
    assert fold.inventory is not None  # it was read once at least
    nodes = DeviceNodes(config.nvidia_driver_dir, config.dev_dir)
    return Findings(
        host=host,
        inventory=fold.inventory,
        holds=list(health.holds),
        strangers=_strangers(config, nodes),
        troubles=[*_nvml_troubles(reading), *_host_troubles(config, kernel_log, nodes)],
    )


def _kernel_log(path: Path) -> KernelLogReading:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return KernelLogReading("down", f"{path}: {error.strerror}")
    return KernelLogReading("ok")


def _strangers(config: Config, nodes: DeviceNodes) -> dict[str, list[str]]:
    table = ProcessTable(allowed=Allowed(frozenset(config.allowed_processes), config.allowed_cgroups))
    found = {
        uuid: [str(holder) for holder in table.holding([config.dev_dir / f"nvidia{minor}"])]
        for uuid, minor in sorted(nodes.minors().items())
    }
    return {uuid: who for uuid, who in found.items() if who}


def _nvml_troubles(reading: NodeReading) -> Iterable[str]:
    if reading.nvml != "ok":
        said = f" ({reading.message})" if reading.message else ""
        yield f"! {_ADVICE.get(reading.nvml, reading.nvml)}{said}"
    elif not reading.gpus:
        yield "! NVML answers and knows no GPU: look at lspci and the kernel log"


def _host_troubles(config: Config, kernel_log: KernelLogReading, nodes: DeviceNodes) -> Iterable[str]:
    if kernel_log.status == "down":
        yield f"! the kernel log cannot be read ({kernel_log.message}): XIDs are known by NVML alone; run as root"
    if not SYSTEMD_DIR.is_dir():
        yield "! systemd does not run here: no guard can be armed, so a silent node's devices stay blocked"
    elif not nodes.minors():
        yield "! the driver names no device nodes: no guard can be armed"
    for name, folder in (("cdi_dir", config.cdi_dir), ("state_dir", config.state_dir), ("run_dir", config.run_dir)):
        place = next((one for one in (folder, *folder.parents) if one.exists()), folder)
        if not os.access(place, os.W_OK):
            yield f"! {name} = {folder} cannot be written by you: run as root, or set another"
