"""Instants and lengths of time as a person reads them."""

from muster_shared.time import format_duration, format_instant

SECOND_MS = 1000


def relative(instant_ms: int, now_ms: int) -> str:
    """Say how far an instant is from now, to the second: `in 3h`, `2d4h ago`, `now`."""
    away_ms = abs(instant_ms - now_ms) // SECOND_MS * SECOND_MS
    if not away_ms:
        return "now"
    return f"in {format_duration(away_ms)}" if instant_ms > now_ms else f"{format_duration(away_ms)} ago"


def moment(instant_ms: int | None, now_ms: int | None, *, exact: bool) -> str:
    """Say when: relative to the coordinator's clock where that is known, exact where asked for; `-` for never."""
    if instant_ms is None:
        return "-"
    return format_instant(instant_ms) if exact or now_ms is None else relative(instant_ms, now_ms)
