"""Faults that come back: what repaired a GPU the last time is not believed a second time.

Source: XID catalogue, `escalate`: the same code again within a week of a reset asks for a reboot, and again after that
for an operator; a contained memory error twice within a day for a reset; a GPU off the bus twice within a month for an
operator.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from muster_agent.core.xids import ClearsBy

_DAY_MS: Final = 86_400_000
_NEXT: Final[dict[ClearsBy, tuple[ClearsBy, int]]] = {
    "recoveryActionNone": ("gpuResetVerified", _DAY_MS),
    "gpuResetVerified": ("nodeRebootVerified", 7 * _DAY_MS),
    "nodeRebootVerified": ("operator", 30 * _DAY_MS),
}
"""Rule by which a hold ended -> rule for the same fault again, and within which time that counts as again."""

_CURES_MAX: Final = 256  # 16 GPUs with 16 codes each; the oldest are forgotten first


@dataclass(frozen=True, slots=True)
class Cure:
    """A hold of one code on one GPU that ended by its rule."""

    uuid: str
    code: int
    cleared_by: ClearsBy
    unix_ms: int  # when; the only clock that spans reboots, and a wrong one errs by asking for too much or too little


def cured(cures: Iterable[Cure], ended: Iterable[Cure]) -> tuple[Cure, ...]:
    """Add cures; of each GPU and code the latest stays."""
    latest = {(cure.uuid, cure.code): cure for cure in (*cures, *ended)}
    return tuple(latest.values())[-_CURES_MAX:]


def rule_for(cures: Iterable[Cure], uuid: str | None, code: int, clears_by: ClearsBy, now_ms: int) -> ClearsBy:
    """Return the rule that ends a fault which strikes now.

    Args:
        cures: What ended before.
        uuid: The GPU; one that nobody can name yet has no history.
        code: The fault.
        clears_by: The rule of its first time.
        now_ms: Wall clock, milliseconds UTC.
    """
    before = next((cure for cure in cures if (cure.uuid, cure.code) == (uuid, code)), None)
    if before is None or before.cleared_by not in _NEXT:
        return clears_by
    stricter, window_ms = _NEXT[before.cleared_by]
    return stricter if now_ms - before.unix_ms <= window_ms else clears_by
