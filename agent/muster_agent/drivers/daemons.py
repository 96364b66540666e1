"""Whether the services run that a fabric needs beside the driver.

Source: NVIDIA's fabric manager and IMEX guides: who configures NVSwitches of this host, who connects its memory to
other hosts'.
"""

from pathlib import Path
from typing import Final

from muster_agent.core.readings import Daemon
from muster_agent.drivers.pci import PCI_DEVICES, has_nvswitch

IMEX_NODES: Final = Path("/etc/nvidia-imex/nodes_config.cfg")
"""Names the hosts of the IMEX domain, one a line. A host of none has no such file, or one of comments only."""

_PROC: Final = Path("/proc")
_NAMES: Final[dict[Daemon, str]] = {"fabricManager": "nv-fabricmanage", "imex": "nvidia-imex"}
"""As the kernel has them: 15 characters at most."""


class Daemons:
    """Remembers where each was found, so that a look costs one small file."""

    def __init__(self, devices: Path = PCI_DEVICES, imex_nodes: Path = IMEX_NODES, proc: Path = _PROC) -> None:
        self._devices = devices
        self._imex_nodes = imex_nodes
        self._proc = proc
        self._pids: dict[Daemon, str] = {}
        self._has_nvswitch: bool | None = None  # of a boot's lifetime

    def down(self) -> tuple[Daemon, ...]:
        """List the services that this host needs and that do not run.

        Cost: a read of each process's name where one was not found at its former place.
        """
        needed: list[Daemon] = []
        if self._has_nvswitch is None:
            self._has_nvswitch = has_nvswitch(self._devices)
        if self._has_nvswitch:
            needed.append("fabricManager")
        if _lists_hosts(self._imex_nodes):
            needed.append("imex")
        return tuple(daemon for daemon in needed if not self._runs(daemon))

    def _runs(self, daemon: Daemon) -> bool:
        name = _NAMES[daemon]
        if _comm(self._proc / self._pids.get(daemon, "none")) == name:
            return True
        pid = next((one.name for one in self._proc.glob("[0-9]*") if _comm(one) == name), None)
        if pid is None:
            return False
        self._pids[daemon] = pid
        return True


def _comm(process: Path) -> str | None:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return None


def _lists_hosts(nodes: Path) -> bool:
    try:
        return any(line.strip() and not line.lstrip().startswith("#") for line in nodes.read_text().splitlines())
    except (OSError, ValueError):
        return False
