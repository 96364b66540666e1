"""Draws the states of a reservation, from the table of moves, into the coordinator's page."""

import re
from pathlib import Path
from typing import Final

from muster_coordinator.core.lifecycle.model import MOVES
from muster_coordinator.core.model import State

PAGE: Final = Path(__file__).parents[1] / "coordinator" / "README.md"

_MARKED: Final = re.compile(r"(<!-- drawn: lifecycle -->\n).*?(<!-- end of drawn -->)", re.DOTALL)


def lifecycle() -> str:
    """Return the state diagram of a reservation, one line a move, in the order of the table."""
    moves = [f"    {before} --> {after}: {move}" for (before, move), after in MOVES.items()]
    ends = f"    {State.ENDED} --> [*]"
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {State.PENDING}", *moves, ends, "```", ""])


def redrawn(page: str) -> str:
    """Return a page with its diagram as the code has it now.

    Raises:
        ValueError: The page has no place for it.
    """
    text, places = _MARKED.subn(lambda marks: marks[1] + lifecycle() + marks[2], page)
    if places != 1:
        raise ValueError(f"one place marked `drawn: lifecycle` is needed, there are {places}")
    return text


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text()))
