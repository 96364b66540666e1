"""GPUs on the PCI bus: what the NVIDIA driver owns, whether or not NVML lists it."""

from pathlib import Path
from typing import Final

from muster_agent.core.readings import pci_address

PCI_DEVICES: Final = Path("/sys/bus/pci/devices")

_NVIDIA: Final = "0x10de"
_BRIDGE: Final = "0x0680"  # PCI class of other bridges, which NVSwitches are
_DISPLAY: Final = "0x03"  # PCI base class of display controllers, 3D controllers among them


def gpus_of_the_driver(devices: Path = PCI_DEVICES) -> tuple[str, ...]:
    """List the PCI addresses of all GPUs bound to the driver `nvidia`, rising.

    A GPU that a virtual machine owns is bound to another driver and is none of ours.
    """
    owned = (pci_address(device.name) for device in devices.glob("*") if _is_owned(device))
    return tuple(sorted(pci for pci in owned if pci))


def _is_owned(device: Path) -> bool:
    try:
        display = (device / "class").read_text().startswith(_DISPLAY)
        return display and (device / "driver").readlink().name == "nvidia"
    except OSError:
        return False  # no driver is bound, or the device went while we looked


def has_nvswitch(devices: Path = PCI_DEVICES) -> bool:
    """Tell whether this host has NVSwitches of its own to configure."""
    return any(_is_nvswitch(device) for device in devices.glob("*"))


def _is_nvswitch(device: Path) -> bool:
    try:
        return (device / "vendor").read_text().strip() == _NVIDIA and (device / "class").read_text().startswith(_BRIDGE)
    except OSError:
        return False
