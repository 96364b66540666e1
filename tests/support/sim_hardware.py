"""What a simulated host is made of, and what its senses would say of it."""

from dataclasses import dataclass, field

from muster_agent.core.records import Facts
from muster_shared.wire import FABRIC_DOMAIN, Gpu, Hold, Inventory, Monitoring


@dataclass(slots=True)
class Hardware:
    """What the senses would find. It outlives process and boot."""

    gpus: tuple[str, ...]
    home: str  # the fabric where it is when nothing is wrong
    domain: str | None
    holds: list[Hold] = field(default_factory=list)

    @property
    def inventory(self) -> Inventory:
        gpus = [Gpu(uuid=uuid, pci="0000:01:00", model="H100", memory_mib=80_000) for uuid in self.gpus]
        labels = {FABRIC_DOMAIN: self.domain} if self.domain else {}
        return Inventory(
            gpus=gpus,
            labels=labels,
            fabric_reason=None if self.domain else "inProgress",
            monitoring=Monitoring(nvml="ok", events="ok", kernel_log="ok"),
            hostname="host",
        )

    @property
    def inventory_hash(self) -> str:
        return f"in {self.domain}"

    @property
    def facts(self) -> Facts:
        return Facts(frozenset(self.gpus), tuple(self.holds), self.domain)
