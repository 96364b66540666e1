"""How much a draft asks for, as policies see it: computed here, whatever fields the caller has sent."""

from dataclasses import dataclass, replace
from typing import Any, Final

from muster_coordinator.core.model import Entry, Reservation, Shape
from muster_shared.devices import MILLI_PER_GPU

_SLICES_MAX: Final = 7  # compute slices of a GPU, of which a MIG profile such as 3g.40gb names its part
_LARGEST_SHARE_MILLI: Final = MILLI_PER_GPU // 2  # of a GPU that is cut into shares at all


@dataclass(frozen=True, slots=True)
class Weight:
    """What a policy may limit. MIG instances and shares are no whole GPUs: `gpu_count` does not count them."""

    gpu_count: int  # whole GPUs of each node, times the nodes
    gang_size: int
    gpu_equivalent_milli: int  # shares rounded up to the largest that the request could be given
    duration_ms: int
    start_ms: int
    binding: str = "devices"
    spot: bool = False

    def context(self) -> dict[str, Any]:
        """Return it as the context of a decision. Instants and lengths are milliseconds."""
        return {
            "gpuCount": self.gpu_count,
            "gangSize": self.gang_size,
            "gpuEquivalentMilli": self.gpu_equivalent_milli,
            "duration": self.duration_ms,
            "start": self.start_ms,
            "binding": self.binding,
            "spot": self.spot,
        }


def weight_of_reservation(one: Reservation, *, size: int | None = None, duration_ms: int | None = None) -> Weight:
    """Weigh a reservation, or what it is to become: another `size` in nodes, another `duration_ms`."""
    wanted_ms = one.duration_ms if duration_ms is None else duration_ms
    weight = weight_of(one.shape, one.size if size is None else size, one.start_ms, wanted_ms)
    return replace(weight, spot=one.spot)


def weight_of(shape: Shape, size: int, start_ms: int, duration_ms: int) -> Weight:
    """Weigh `size` nodes that each give `shape` for `duration_ms`.

    Source: design, section 5, "Policy".
    """
    return Weight(
        gpu_count=sum(entry.count for entry in shape.entries if entry.kind == "gpu") * size,
        gang_size=size,
        gpu_equivalent_milli=sum(entry.count * _milli(entry) for entry in shape.entries) * size,
        duration_ms=duration_ms,
        start_ms=start_ms,
    )


def _milli(entry: Entry) -> int:
    match entry.kind:
        case "gpu":
            return MILLI_PER_GPU
        case "slot":
            return _LARGEST_SHARE_MILLI
        case "mig":
            slices, _, _ = (entry.profile or "").partition("g")
            parts = min(int(slices), _SLICES_MAX) if slices.isdecimal() else _SLICES_MAX
            return -(-parts * MILLI_PER_GPU // _SLICES_MAX)
