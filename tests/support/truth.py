"""What agents really exposed: kept beside the system, in true time, by the drivers that did it."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Exposure:
    """A tenant could reach these devices in `[from_ms, to_ms)`."""

    node_id: str
    boot_id: str
    allocation_id: str
    reservation_id: str
    devices: frozenset[str]
    from_ms: int
    to_ms: int | None = None


@dataclass(slots=True)
class Truth:
    """The log. Told in the order of true time, so an overlap is seen when it begins."""

    open: dict[tuple[str, str], Exposure] = field(default_factory=dict)  # by node and allocation
    closed: list[Exposure] = field(default_factory=list)
    awake_since_ms: dict[str, int] = field(default_factory=dict)  # nodes whose agent runs: only they can let go
    faults: list[str] = field(default_factory=list)
    bound: set[tuple[str, str]] = field(
        default_factory=set
    )  # allocation and boot: it was really reachable in that boot

    def exposed(self, exposure: Exposure) -> None:
        """A driver let a tenant in. Doing so again changes nothing."""
        key = (exposure.node_id, exposure.allocation_id)
        if key in self.open:
            return
        for other in self.open.values():
            if other.reservation_id != exposure.reservation_id and other.devices & exposure.devices:
                shared = min(other.devices & exposure.devices)
                self.faults.append(
                    f"I07 {shared} is exposed to {exposure.allocation_id} while {other.allocation_id} still has it"
                )
        self.open[key] = exposure
        self.bound.add((exposure.allocation_id, exposure.boot_id))

    def withdrawn(self, node_id: str, allocation_id: str, now_ms: int) -> None:
        """A driver shut a tenant out, or found nothing to shut."""
        if exposure := self.open.pop((node_id, allocation_id), None):
            exposure.to_ms = now_ms
            self.closed.append(exposure)

    def rebooted(self, node_id: str, now_ms: int) -> None:
        """A host went down, and every tenant's process with it."""
        for exposure in [one for one in self.open.values() if one.node_id == node_id]:
            self.withdrawn(node_id, exposure.allocation_id, now_ms)

    def all(self) -> Iterator[Exposure]:
        """Yield every exposure that ever was."""
        yield from self.closed
        yield from self.open.values()
