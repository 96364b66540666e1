"""A node's senses on a disk of their own and a clock that the test moves: readings and faults in, what is told out."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from muster_agent.core.readings import GpuEvent, HostReading, KernelLogReading, NodeReading
from muster_agent.core.records import Instance, Record
from muster_agent.drivers.fake import fake_host
from muster_agent.journal import Journal
from muster_agent.loop.senses import Senses
from muster_shared.wire import FABRIC_DOMAIN, Finding, Inventory

CLUSTER = "9277d399-0674-a4a9-b64e-d85bb19ce2b0"
HOST = HostReading(hostname="gpu-01", machine_id="0123456789abcdef", boot_id="boot-1", cpus=96, memory_mib=2_000_000)
WELL = fake_host("one", cluster=CLUSTER, clique=5)
GPU, OTHER = str(WELL.gpus[0].uuid), str(WELL.gpus[1].uuid)
SCAN_MS = 5_000


@dataclass
class HandClock:
    """Stands still until told."""

    wall_ms: int = 1_800_000_000_000
    up_ms: int = 600_000

    def unix_ms(self) -> int:
        return self.wall_ms

    def boot_ms(self) -> int:
        return self.up_ms

    async def sleep(self, ms: int) -> None:
        raise AssertionError(f"nobody here sleeps, certainly not {ms} ms")

    def random(self) -> float:
        return 0.5


@dataclass
class Node:
    """One agent's senses. Each act returns the node, so that a story reads from left to right."""

    folder: Path
    clock: HandClock = field(default_factory=HandClock)
    host: HostReading = HOST
    log: KernelLogReading = field(default_factory=lambda: KernelLogReading("ok"))
    records: tuple[Record, ...] = ()
    seq: int = 0

    def __post_init__(self) -> None:
        self.journal = Journal.open(self.folder)
        self.senses = Senses(self.host, self.journal, self.clock)

    def wait(self, ms: int) -> "Node":
        self.clock.up_ms += ms
        self.clock.wall_ms += ms
        return self

    def look(self, reading: NodeReading = WELL, times: int = 1) -> "Node":
        """Scan, then wait for the next scan to be due."""
        for _ in range(times):
            self.senses.take_reading(reading, self.log)
            self.wait(SCAN_MS)
        return self

    def nvml(self, code: int, gpu: str = GPU, **fields: object) -> "Node":
        return self.event(GpuEvent("nvml", code, gpu, None, self.clock.up_ms, **fields))  # type: ignore[arg-type]  # names of fields

    def line(self, code: int, gpu: int = 0, **fields: object) -> "Node":
        self.seq += 1
        told = GpuEvent("kernelLog", code, None, WELL.gpus[gpu].pci, self.clock.up_ms, seq=self.seq)
        return self.event(replace(told, **fields))  # type: ignore[arg-type]  # names of fields

    def event(self, event: GpuEvent) -> "Node":
        self.senses.take_event(event, self.records)
        return self

    def restart(self, boot_id: str | None = None) -> "Node":
        """The agent is killed and started; with another boot id the host was too."""
        self.journal.close()
        if boot_id:
            self.host = replace(self.host, boot_id=boot_id)
            self.clock.up_ms, self.seq = 60_000, 0
        self.__post_init__()
        return self

    @property
    def inventory(self) -> Inventory:
        assert self.senses.inventory is not None
        return self.senses.inventory

    @property
    def domain(self) -> str | None:
        return self.inventory.labels.get(FABRIC_DOMAIN)

    @property
    def reason(self) -> str | None:
        return self.inventory.fabric_reason

    @property
    def held(self) -> list[tuple[str | None, str, int | None]]:
        return [(hold.device, hold.cause, hold.code) for hold in self.senses.holds]

    @property
    def causes(self) -> list[str]:
        return [finding.cause for finding in self.inventory.findings]

    def finding(self, cause: str) -> Finding:
        [found] = [finding for finding in self.inventory.findings if finding.cause == cause]
        return found


def with_fabric(reading: NodeReading, *indexes: int, **fields: object) -> NodeReading:
    """Change the fabric of some GPUs, or of all where none is named."""
    gpus = list(reading.gpus)
    for index in indexes or range(len(gpus)):
        fabric = gpus[index].fabric
        assert fabric
        gpus[index] = replace(gpus[index], fabric=fabric.model_copy(update=fields))
    return replace(reading, gpus=tuple(gpus))


def with_gpu(reading: NodeReading, index: int, **fields: object) -> NodeReading:
    gpus = list(reading.gpus)
    gpus[index] = replace(gpus[index], **fields)  # type: ignore[arg-type]  # names of fields
    return replace(reading, gpus=tuple(gpus))


def bound(
    allocation_id: str, tenant_id: str, *devices: str, instances: tuple[Instance, ...] = (), shared: bool = False
) -> Record:
    """An allocation that holds these devices."""
    return Record(
        allocation_id=allocation_id,
        reservation_id=f"rsv_{allocation_id}",
        generation=1,
        tenant_id=tenant_id,
        devices=devices,
        state="bound",
        boot_id=HOST.boot_id,
        since_boot_ms=0,
        end_boot_ms=10**12,
        end_unix_ms=10**13,
        instances=instances,
        shared=devices if shared else (),
    )
