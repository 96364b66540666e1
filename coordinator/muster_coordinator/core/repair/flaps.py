"""Does a node come and go? What turns bad and well again too often is trusted with nothing new."""

from collections.abc import Iterable
from typing import Final

DAY_MS: Final = 86_400_000
NO_DATA: Final = frozenset({"nvmlDown", "monitoringDown"})
"""Causes of holds that say that nobody can see, not that something is broken: soft signs, as silence is."""

FLIPS_MAX: Final = 3
"""Turns for the worse within a day that a node may make. Source: facts on reliability, F18."""


def with_flip(flips: Iterable[int], now_ms: int) -> list[int]:
    """Return the turns for the worse of the last day, this one included, ms UTC, rising."""
    return [*(flip for flip in sorted(flips) if flip > now_ms - DAY_MS), now_ms]


def flapping_until_ms(flips: Iterable[int], now_ms: int) -> int:
    """Return when a node that flaps now will have been quiet enough; 0 where it does not flap.

    Args:
        flips: Instants at which it turned bad or silent, in any order.
        now_ms: Milliseconds UTC.
    """
    latest = sorted(flips, reverse=True)
    until_ms = latest[FLIPS_MAX] + DAY_MS if len(latest) > FLIPS_MAX else 0
    return until_ms if until_ms > now_ms else 0
