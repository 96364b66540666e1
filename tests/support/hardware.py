"""A GPU host's files as tests make them: what the driver tells of its GPUs, and device nodes that are plain files."""

from pathlib import Path

from muster_agent.drivers.device_nodes import DeviceNodes

INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 229
GPU UUID: \t {uuid}
Bus Location: \t 0000:{bus:02x}:00.0
Device Minor: \t {minor}
GPU Excluded:\t No
"""


class HostFiles:
    """A folder with `proc` (the driver's words) and `dev` (nodes that are plain files)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dev = folder / "dev"
        self.dev.mkdir(parents=True, exist_ok=True)
        self.node("nvidiactl")
        self.node("nvidia-uvm")

    @property
    def nodes(self) -> DeviceNodes:
        return DeviceNodes(self.folder / "proc", self.dev)

    def node(self, name: str) -> Path:
        path = self.dev / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    def gpu(self, uuid: str, minor: int) -> Path:
        """Add a GPU and its node."""
        told = self.folder / "proc" / "gpus" / f"0000:{0x10 + minor:02x}:00.0"
        told.mkdir(parents=True)
        (told / "information").write_text(INFORMATION.format(uuid=uuid, bus=0x10 + minor, minor=minor))
        return self.node(f"nvidia{minor}")

    def instance(self, minor: int, gpu_instance: int, compute_instance: int, first_cap: int) -> None:
        """Add a MIG instance of a GPU, with two capability nodes."""
        instance = self.folder / "proc" / "capabilities" / f"gpu{minor}" / "mig" / f"gi{gpu_instance}"
        for cap, folder in ((first_cap, instance), (first_cap + 1, instance / f"ci{compute_instance}")):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "access").write_text(f"DeviceFileMinor: {cap}\nDeviceFileMode: 256\nDeviceFileModify: 1\n")
            self.node(f"nvidia-caps/nvidia-cap{cap}")
