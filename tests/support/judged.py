"""A node whose GPUs are judged: a health fold with a clock beside it, as the agent's loop has."""

import json
from dataclasses import dataclass, replace

from muster_agent.core.health import Health
from muster_agent.core.marks import PROBE_MS
from muster_agent.core.readings import GpuEvent, KernelLogReading, NodeReading
from muster_agent.drivers.fake import fake_host

NODE = fake_host("one")
GPU, OTHER = str(NODE.gpus[0].uuid), str(NODE.gpus[1].uuid)
LOG, NO_LOG = KernelLogReading("ok"), KernelLogReading("down")
WALL_MS = 1_800_000_000_000


def reading(node: NodeReading = NODE, /, **fields: object) -> NodeReading:
    """Read the node with its first GPU changed."""
    return replace(node, gpus=(replace(node.gpus[0], **fields), *node.gpus[1:]))  # type: ignore[arg-type]  # names of fields


ABSENT = replace(NODE, gpus=NODE.gpus[1:])


@dataclass
class Agent:
    """Does to the fold what the host does to the agent, and says what is held."""

    health: Health
    boot_ms: int = 1_000_000
    wall_ms: int = WALL_MS
    boot_id: str = "boot-1"
    seq: int = 0

    def wait(self, ms: int) -> "Agent":
        self.boot_ms += ms
        self.wall_ms += ms
        return self

    def nvml(self, code: int, gpu: str = GPU, **fields: object) -> "Agent":
        return self.event(GpuEvent("nvml", code, gpu, None, self.boot_ms, **fields))  # type: ignore[arg-type]  # names of fields

    def line(self, code: int, pci: str = "0000:0a:00", **fields: object) -> "Agent":
        self.seq += 1
        return self.event(
            GpuEvent("kernelLog", code, None, pci, self.boot_ms, seq=self.seq, **fields)  # type: ignore[arg-type]  # names of fields
        )

    def event(self, event: GpuEvent) -> "Agent":
        self.health = self.health.after_event(event, self.wall_ms, self.boot_id)
        return self

    def read(self, told: NodeReading = NODE, log: KernelLogReading = LOG) -> "Agent":
        self.health = self.health.after_reading(told, self.wall_ms, self.boot_id, self.boot_ms, log)
        return self

    def probe(self, told: NodeReading = NODE) -> "Agent":
        """Read well twice, as far apart as a probe asks."""
        return self.read(told).wait(PROBE_MS).read(told)

    def restart(self) -> "Agent":
        self.health = Health.from_dict(json.loads(json.dumps(self.health.to_dict())))
        return self

    def reboot(self) -> "Agent":
        self.restart()
        self.boot_id, self.boot_ms, self.seq = self.boot_id + "+", 60_000, 0
        return self

    @property
    def held(self) -> list[tuple[str | None, str, int | None]]:
        return [(hold.device, hold.cause, hold.code) for hold in self.health.holds]
