"""What a page draws from the code is what the code says today."""

import re

import pytest

from muster_coordinator.core.lifecycle.model import MOVES
from scripts.draw_diagrams import PAGE, lifecycle, redrawn


def test_the_drawn_states_are_those_of_the_table() -> None:
    page = PAGE.read_text()

    assert page == redrawn(page), "stale: run scripts/diagrams"


def test_every_move_is_drawn_once() -> None:
    drawn = re.findall(r"(\w+) --> (\w+): (\w+)", lifecycle())

    assert drawn == [(before, after, move) for (before, move), after in MOVES.items()]


def test_a_stale_page_is_told_from_a_fresh_one() -> None:
    page = PAGE.read_text()
    stale = page.replace("    pending --> placed: place\n", "")

    assert stale != page
    assert redrawn(stale) == page


def test_a_page_without_a_place_for_the_drawing_is_no_page() -> None:
    with pytest.raises(ValueError, match="one place"):
        redrawn("# coordinator\n")
