"""Waits for a driver that is loaded after the agent began.

systemd turns the names of device classes into numbers once, when it starts a unit. A unit that began before the
driver may therefore not open the driver's devices, however often NVML is tried: it has to begin again.

Source: systemd.resource-control(5), DeviceAllow; case A40.
"""

from pathlib import Path
from typing import Final

from muster_agent.clock import Clock

PROC_DEVICES: Final = Path("/proc/devices")

_NAMES: Final = frozenset({"nvidia", "nvidia-frontend"})  # its class, now and before driver 550
_LOOK_MS: Final = 5_000  # one scan


async def driver_arrives(clock: Clock, devices: Path = PROC_DEVICES) -> None:
    """Return once a driver is there that was not there when this was called; never, where it was."""
    had = _is_loaded(devices)
    while had or not _is_loaded(devices):
        await clock.sleep(_LOOK_MS)


def _is_loaded(devices: Path) -> bool:
    try:
        return any(set(line.split()[1:2]) & _NAMES for line in devices.read_text().splitlines())
    except OSError:
        return False
