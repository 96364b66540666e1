"""How much of a pool a tenant may hold at once. Amounts are integers, milli-GPU."""

from dataclasses import dataclass
from enum import StrEnum

from muster_coordinator.core.model import Shape
from muster_shared.devices import MILLI_PER_GPU


class Verdict(StrEnum):
    """What a limit says to one more gang."""

    FITS = "fits"
    WAITS = "waits"  # for what its tenant holds besides
    NEVER = "never"  # it is more than all that its tenant may hold


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one tenant may hold in one pool, and holds."""

    limit_milli: int | None  # None where there is no limit
    used_milli: int  # at least 0; not looked up where there is no limit

    def verdict(self, milli: int) -> Verdict:
        """Judge a gang of `milli` milli-GPU, whole; up to the limit, it fits."""
        if self.limit_milli is None:
            return Verdict.FITS
        if milli > self.limit_milli:
            return Verdict.NEVER
        return Verdict.FITS if self.used_milli + milli <= self.limit_milli else Verdict.WAITS

    def with_more(self, milli: int) -> "Allowance":
        """Return what is left when this much more is held."""
        return Allowance(self.limit_milli, self.used_milli + milli)


def least_milli(shape: Shape, size: int) -> int:
    """Return what a gang takes at least, whatever nodes it gets: its whole GPUs. How large a share is, a node tells."""
    return sum(entry.count for entry in shape.entries if entry.kind == "gpu") * size * MILLI_PER_GPU


def shrunk_milli(milli: int, former_size: int, size: int) -> int:
    """Return the charge of a gang of which `size` of `former_size` nodes stay: their part, rounded up.

    Never more than it was: `1 <= size <= former_size`.
    """
    return -(-milli * size // former_size)
