"""What a reservation was promised and what it got. Amounts are integers, milli-GPU times milliseconds, and exact."""

from collections.abc import Iterable
from dataclasses import dataclass

from muster_shared.time import Window


@dataclass(frozen=True, slots=True)
class Use:
    """So much of GPUs over a time: promised by a charge, or used by an allocation."""

    milli: int  # milli-GPU, at least 0
    start_ms: int
    end_ms: int  # not before the start; an empty one is nothing


def milli_ms(uses: Iterable[Use], period: Window) -> int:
    """Return what lies in a period, cut at its edges: two periods that touch add up to the one that spans them."""
    return sum(one.milli * max(0, min(one.end_ms, period.end_ms) - max(one.start_ms, period.start_ms)) for one in uses)


def promised(charges: Iterable[tuple[int, int, int | None]], window: Window, given_up_ms: int | None) -> list[Use]:
    """Return what the charges of a reservation promise of its window.

    A charge that another one followed, as where a gang shrank, promises until it was given back. The last one promises
    the whole window, however early hardware ended it: only its owner takes a promise back.

    Args:
        charges: Milli-GPU, when it was charged and when given back or None, each; in their order.
        window: As it was booked.
        given_up_ms: When its owner ended it; None where nobody did.
    """
    uses: list[Use] = []
    rows = list(charges)
    for number, (milli, charged_ms, returned_ms) in enumerate(rows):
        until_ms = window.end_ms if given_up_ms is None else min(window.end_ms, given_up_ms)
        if number < len(rows) - 1 and returned_ms is not None:
            until_ms = min(until_ms, returned_ms)
        start_ms = max(window.start_ms, charged_ms)
        uses.append(Use(milli, start_ms, max(start_ms, until_ms)))
    return uses


def late_ms(start_ms: int, activated_ms: int | None, until_ms: int) -> int:
    """Return how long a reservation let its owner wait after its start.

    Args:
        start_ms: As it was booked.
        activated_ms: When every member was bound; None while, or where, that never was.
        until_ms: Now, or when the reservation ended or its window was over.
    """
    return max(0, (until_ms if activated_ms is None else activated_ms) - start_ms)
