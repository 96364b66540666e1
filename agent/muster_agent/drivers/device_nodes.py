"""Which device nodes belong to a GPU or a MIG instance, as the driver tells it.

Source: the driver's README, "/proc/driver/nvidia/gpus/domain:bus:device.function/information"; NVIDIA's MIG guide,
"device nodes and capabilities"; agent facts, section 4.1.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from muster_agent.core.records import Record

DRIVER_DIR: Final = Path("/proc/driver/nvidia")
DEV_DIR: Final = Path("/dev")
_SHARED_NODES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_FIELD: Final = re.compile(r"^(GPU UUID|Device Minor):\s+(\S+)\s*$", re.MULTILINE)
_CAP_MINOR: Final = re.compile(r"^DeviceFileMinor:\s+(\d+)\s*$", re.MULTILINE)


class DeviceNodes:
    """Reads nodes afresh each time: their numbers change over reboots, and those of instances with the layout.

    Args:
        driver_dir: Where the driver describes its GPUs.
        dev_dir: Where device nodes are; only those that exist are named.
    """

    def __init__(self, driver_dir: Path = DRIVER_DIR, dev_dir: Path = DEV_DIR) -> None:
        self._driver_dir = driver_dir
        self._dev_dir = dev_dir

    def needed(self, record: Record) -> list[str]:
        """Name the nodes that a tenant opens, below `/dev`: its own first, then those that all tenants need."""
        names = [*self._gpus(record), *self._capabilities(record, record.devices), *_SHARED_NODES]
        if record.imex_channel is not None:
            names.append(imex_node(record.imex_channel))
        return [name for name in dict.fromkeys(names) if self.exists(name)]

    def private(self, record: Record, devices: Iterable[str]) -> list[Path]:
        """List the nodes that nobody opens but who is on one of the devices.

        All who are on any instance of a GPU open the GPU's node, so an instance has its capabilities only.
        """
        devices = tuple(devices)
        minors = self.minors()
        names = [f"nvidia{minors[uuid]}" for uuid in devices if uuid in minors]
        return [self._dev_dir / name for name in (*names, *self._capabilities(record, devices)) if self.exists(name)]

    def exists(self, name: str) -> bool:
        """Tell whether a node, named below `/dev`, has been made."""
        return (self._dev_dir / name).exists()

    def minors(self) -> dict[str, int]:
        """Read which `/dev/nvidiaN` each GPU is, by UUID. Empty where the driver is not loaded or tells nothing."""
        minors: dict[str, int] = {}
        for path in sorted((self._driver_dir / "gpus").glob("*/information")):
            try:
                fields: dict[str, str] = dict(_FIELD.findall(path.read_text(errors="replace")))
            except OSError:
                continue  # a GPU that fell off the bus leaves its folder for a moment
            if "GPU UUID" in fields and fields.get("Device Minor", "").isdecimal():
                minors[fields["GPU UUID"]] = int(fields["Device Minor"])
        return minors

    def _gpus(self, record: Record) -> Iterator[str]:
        minors = self.minors()
        return (f"nvidia{minors[uuid]}" for uuid in sorted(record.gpus) if uuid in minors)

    def _capabilities(self, record: Record, devices: Iterable[str]) -> Iterator[str]:
        wanted, minors = set(devices), self.minors()
        for place in record.instances:
            if place.uuid not in wanted or place.gpu not in minors:
                continue
            instance = f"capabilities/gpu{minors[place.gpu]}/mig/gi{place.gpu_instance}"
            for folder in (instance, f"{instance}/ci{place.compute_instance}"):
                minor = self._capability(folder)
                if minor is not None:
                    yield f"nvidia-caps/nvidia-cap{minor}"

    def _capability(self, folder: str) -> int | None:
        try:
            found = _CAP_MINOR.search((self._driver_dir / folder / "access").read_text(errors="replace"))
        except OSError:
            return None
        return int(found[1]) if found else None


def imex_node(channel: int) -> str:
    """Name the node of an IMEX channel, below `/dev`."""
    return f"nvidia-caps-imex-channels/channel{channel}"
