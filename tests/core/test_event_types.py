"""Which events somebody wants who names types."""

import pytest

from muster_coordinator.core.event_types import is_wanted, type_fault


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        ((), True),
        (("reservation.repaired",), True),
        (("reservation.",), True),
        (("node.", "reservation.repaired"), True),
        (("reservation.repair",), False),
        (("reservation",), False),
        (("node.",), False),
    ],
)
def test_an_event_is_wanted_by_its_type_or_by_a_prefix_that_ends_in_a_dot(
    wanted: tuple[str, ...], *, answer: bool
) -> None:
    assert is_wanted("reservation.repaired", wanted) is answer


@pytest.mark.parametrize("written", ["", "node", "Node.x", "node.*", "node.x.y", ".x", "node._", "node.x_", "node. "])
def test_what_no_event_is_called_is_told_with_an_example(written: str) -> None:
    assert "reservation.repaired" in (type_fault(written) or "")


@pytest.mark.parametrize("written", ["node.", "node.hold_added", "reservation.repair_failed"])
def test_types_and_kinds_are_taken(written: str) -> None:
    assert type_fault(written) is None
