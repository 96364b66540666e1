"""Which of two nodes is the better one, and that the table of weights keeps its order."""

from dataclasses import replace

import pytest

from muster_coordinator.core.model import Booked, Node
from muster_coordinator.core.placement.atoms import Picked
from muster_coordinator.core.placement.score import SCORE_MAX, WEIGHTS, score
from muster_coordinator.core.snapshot import NodeView
from tests.support.drawings import WINDOW, asked, nodes


def points(node: Node, mask: int = 0b0011, left: int = 6) -> int:
    return score(NodeView(node), asked(2), Picked(node.id, mask, left))


def with_bookings(*booked: Booked) -> Node:
    return replace(nodes("a1 A ........")[0], booked=booked)


def test_fewer_atoms_left_over_are_better() -> None:
    node = nodes("a1 A ........")[0]

    assert points(node, left=2) > points(node, left=3) > points(node, left=6)


def test_a_node_without_a_hold_is_better_than_one_with() -> None:
    assert points(nodes("a1 A ........")[0]) > points(nodes("a1 A .......x")[0])


def test_work_that_needs_no_fabric_leaves_fabrics_to_gangs() -> None:
    def alone(drawing: str) -> int:
        return score(NodeView(nodes(drawing)[0]), asked(2, key=None), Picked("n", 0b0011, 6))

    assert alone("n - ........") > alone("n A ........")
    assert points(nodes("n - ........")[0]) == points(nodes("n A ........")[0])


@pytest.mark.parametrize(
    ("booked", "snug"),
    [
        ((), 0),
        ((Booked(0, WINDOW.start_ms, 0b0001, "before"),), 500),
        ((Booked(WINDOW.end_ms, 9_000, 0b0001, "after"),), 500),
        ((Booked(0, WINDOW.start_ms, 1, "before"), Booked(WINDOW.end_ms, 9_000, 2, "after")), 1_000),
        ((Booked(0, WINDOW.start_ms - 1, 0b0001, "earlier"),), 0),
        ((Booked(WINDOW.end_ms + 1, 9_000, 0b0001, "later"),), 0),
        ((Booked(0, WINDOW.start_ms, 0b0100, "other atoms"),), 0),
        ((Booked(0, WINDOW.start_ms, 0b0001, "before"), Booked(9, WINDOW.start_ms, 0b0100, "other atoms")), 500),
    ],
)
def test_a_window_that_touches_its_neighbours_on_the_same_atoms_is_better(
    booked: tuple[Booked, ...], snug: int
) -> None:
    assert points(with_bookings(*booked)) - points(with_bookings()) == snug


def test_every_scorer_stays_between_nothing_and_its_most() -> None:
    scenes = [nodes(line)[0] for line in ("a1 A ........", "a1 A .......x", "a1 A .#######")]
    said = {
        scorer(NodeView(node), asked(1), Picked("a1", 1, left))
        for node in scenes
        for left in range(8)
        for scorer, _ in WEIGHTS
    }

    assert min(said) >= 0
    assert max(said) <= SCORE_MAX


def test_no_sum_of_lesser_criteria_outweighs_one_atom_on_a_node_of_eight_but_by_design() -> None:
    # One atom of eight is worth 125 points of the first scorer; a hold outweighs the calendar's neatness.
    weights = [weight for _, weight in WEIGHTS]

    assert weights == sorted(weights, reverse=True)
    assert weights[1] > sum(weights[2:])
    assert weights[0] > sum(weights[1:])
