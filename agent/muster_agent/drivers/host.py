"""What the operating system says of the host."""

import socket
from pathlib import Path
from typing import Final

import psutil

from muster_agent.core.readings import HostReading

MACHINE_ID: Final = Path("/etc/machine-id")
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def read_host(machine_id: Path = MACHINE_ID, boot_id: Path = BOOT_ID) -> HostReading:
    """Read the host's identity and size.

    Raises:
        OSError: There is no machine id or boot id: the host is not set up, and its operator must know.
    """
    return HostReading(
        hostname=socket.gethostname(),
        machine_id=machine_id.read_text().strip(),
        boot_id=boot_id.read_text().strip(),
        cpus=psutil.cpu_count() or 0,
        memory_mib=psutil.virtual_memory().total >> 20,
    )
