"""When a delivery is tried again: by a table, and after a day no more."""

from typing import Final

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS

RETRY_AFTER_MS: Final = (
    5 * _SECOND_MS,
    30 * _SECOND_MS,
    2 * _MINUTE_MS,
    10 * _MINUTE_MS,
    30 * _MINUTE_MS,
    1 * _HOUR_MS,
    2 * _HOUR_MS,
    4 * _HOUR_MS,
    6 * _HOUR_MS,
    6 * _HOUR_MS,
    6 * _HOUR_MS,
)
"""After each attempt that failed; 25 hours and 42 minutes in all, so that a receiver may be down for a whole day.

Source: the Standard Webhooks specification recommends such a schedule; facts on reliability, F27, the day.
"""

JITTER_PERMILLE: Final = 100
"""Each wait is longer by up to a tenth: a thousand deliveries that failed together do not come back together."""


def retry_at_ms(attempts: int, now_ms: int, jitter_permille: int) -> int | None:
    """Return when a delivery is tried again, or None when it is given up.

    Args:
        attempts: Made and failed, at least 1.
        now_ms: When the last one failed.
        jitter_permille: Chance, 0 .. `JITTER_PERMILLE`.
    """
    if attempts > len(RETRY_AFTER_MS):
        return None
    after_ms = RETRY_AFTER_MS[attempts - 1]
    return now_ms + after_ms + after_ms * jitter_permille // 1_000
