"""How often each fault struck: both sources' events merged to one count, however many arrive."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from muster_agent.core.readings import GpuEvent

MERGE_MS: Final = 60_000
"""Events of one fault that arrive within this time are one: the kernel line and the NVML event of it lie apart."""

_TALLIES_MAX: Final = 512  # 16 GPUs with 32 codes each; what struck longest ago is forgotten first


@dataclass(frozen=True, slots=True)
class Tally:
    """Faults of one code at one place in one boot. History: it holds nothing and survives every clearing."""

    place: str  # UUID, else PCI address
    code: int
    instance: str | None
    boot_id: str
    first_boot_ms: int  # of the present burst
    latest_boot_ms: int = 0
    earlier: int = 0  # faults in bursts before this one
    nvml: int = 0
    kernel_log: int = 0
    kind: Literal["xid", "sxid"] = "xid"
    fatal: bool = False  # at least one was said to be

    @property
    def count(self) -> int:
        """Faults so far. Each source reports each fault once, so the larger count is the true one."""
        return self.earlier + max(self.nvml, self.kernel_log)

    def plus(self, event: GpuEvent) -> "Tally":
        """Count an event in, as often as it struck; outside the burst's time it begins another burst."""
        tally = replace(self, latest_boot_ms=event.boot_ms, fatal=self.fatal or event.fatal is True)
        if abs(event.boot_ms - self.first_boot_ms) > MERGE_MS:
            tally = replace(tally, first_boot_ms=event.boot_ms, earlier=self.count, nvml=0, kernel_log=0)
        if event.source == "nvml":
            return replace(tally, nvml=tally.nvml + event.count)
        return replace(tally, kernel_log=tally.kernel_log + event.count)


def tallied(tallies: tuple[Tally, ...], place: str, event: GpuEvent, boot_id: str) -> tuple[Tally, ...]:
    """Count one event. The tally that changed comes last; at most 512 are kept.

    Cost: linear in the number of tallies.
    """
    key = (place, event.code, event.instance, boot_id)
    others = tuple(t for t in tallies if (t.place, t.code, t.instance, t.boot_id) != key)
    mine = next((t for t in tallies if (t.place, t.code, t.instance, t.boot_id) == key), None)
    kind: Literal["xid", "sxid"] = "sxid" if event.kind == "sxid" else "xid"
    tally = mine or Tally(place, event.code, event.instance, boot_id, event.boot_ms, kind=kind)
    return (*others, tally.plus(event))[-_TALLIES_MAX:]
