"""Event types, and which of them somebody wants who names some: whole types, or prefixes that end in a dot."""

import re
from collections.abc import Collection
from typing import Final

_WANTED: Final = re.compile(r"[a-z]+\.(?:[a-z]+(?:_[a-z]+)*)?")


def type_fault(wanted: str) -> str | None:
    """Return what is wrong with a type as somebody wrote it, or None."""
    if _WANTED.fullmatch(wanted):
        return None
    return f"{wanted!r} is no event type: write one as reservation.repaired, or all of a kind as reservation."


def is_wanted(kind: str, wanted: Collection[str]) -> bool:
    """Tell whether an event of this type is wanted; all are where nothing is named."""
    return not wanted or any(kind == one or (one.endswith(".") and kind.startswith(one)) for one in wanted)
