"""Faults of programs that follow a GPU: one tenant's bug is no reason to hold it, those of several are.

Source: XID catalogue, entries 13 and 31, and case A27: three assignments hit on one GPU within 24 h. Here they must
not all be one tenant's: else a tenant with a bug holds, job by job, every GPU that it is given.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

WINDOW_MS: Final = 86_400_000
"""24 h."""

_ASSIGNMENTS: Final = 3  # as many make a GPU suspect
_TENANTS: Final = 2  # of as many
_STRIKES_MAX: Final = 512  # 16 GPUs with 32 assignments each; what struck longest ago is forgotten first


@dataclass(frozen=True, slots=True)
class Victim:
    """Whose program a fault hit."""

    allocation_id: str
    tenant_id: str


@dataclass(frozen=True, slots=True)
class Strike:
    """An assignment was hit on a GPU by a fault that programs cause."""

    uuid: str
    victim: Victim
    boot_id: str
    boot_ms: int
    unix_ms: int

    def is_recent(self, boot_id: str, boot_ms: int, unix_ms: int) -> bool:
        """Tell whether it lies within the window. The wall clock is asked only across a reboot."""
        age_ms = boot_ms - self.boot_ms if boot_id == self.boot_id else max(unix_ms - self.unix_ms, 0)
        return age_ms <= WINDOW_MS


def struck(strikes: Iterable[Strike], strike: Strike) -> tuple[Strike, ...]:
    """Add a strike: one for each assignment on each GPU, the latest; those out of the window go."""
    kept = (
        old
        for old in strikes
        if (old.uuid, old.victim) != (strike.uuid, strike.victim)
        and old.is_recent(strike.boot_id, strike.boot_ms, strike.unix_ms)
    )
    return (*kept, strike)[-_STRIKES_MAX:]


def is_suspect(strikes: Iterable[Strike], uuid: str) -> bool:
    """Tell whether so many assignments, of more than one tenant, were hit on this GPU that it is the GPU."""
    victims = {strike.victim for strike in strikes if strike.uuid == uuid}
    return len(victims) >= _ASSIGNMENTS and len({victim.tenant_id for victim in victims}) >= _TENANTS


def suspected(strikes: Iterable[Strike], boot_id: str, boot_ms: int, unix_ms: int) -> Mapping[str, int]:
    """Count the assignments hit on each GPU within the window, where they are enough to wonder."""
    victims: defaultdict[str, set[Victim]] = defaultdict(set)
    for strike in strikes:
        if strike.is_recent(boot_id, boot_ms, unix_ms):
            victims[strike.uuid].add(strike.victim)
    return {uuid: len(hit) for uuid, hit in victims.items() if len(hit) >= _ASSIGNMENTS}
