"""What a refusal says: one sentence, the same everywhere, and every figure in it true."""

import pytest

from muster_coordinator.core.model import Booked, Request
from muster_coordinator.core.placement.pipeline import plan
from muster_coordinator.core.placement.reasons import Blocker, Refusal
from muster_shared.time import Window
from tests.support.drawings import KEY, asked, drawn, pool

GOLDEN = {
    "no gang of 4 nodes fits in one fabric.domain (at most 3 nodes fit together): "
    "3 nodes free, but with too few others of the same value; 1 node booked until 1970-01-01T00:00:02Z": (
        "a1 A ....\na2 A ....\na3 A ....\na4 A ####",
        asked(4, 4),
    ),
    "no gang of 2 nodes fits in one fabric.domain (at most 1 node fits together): "
    "2 nodes free, but with too few others of the same value"
    "; waiting does not help, since at most 1 node could ever fit together": ("a1 A ....\nb1 B ....", asked(4, 2)),
    "no gang of 2 nodes fits in one rack (at most 0 nodes fit together): 2 nodes without the label"
    "; waiting does not help, since at most 0 nodes could ever fit together": (
        "a1 A ....\na2 A ....",
        asked(4, 2, key="rack"),
    ),
    "no gang of 1 node fits in one fabric.domain (at most 0 nodes fit together): 1 node with devices on hold": (
        "a1 A x...",
        asked(4, 1),
    ),
    "no node fits: 1 node cordoned; 1 node draining; 1 node leased as whole machines; "
    "1 node without enough such devices; 1 node silent": (
        "a1 A .... cordoned\na2 A .... draining\na3 A .... leased\na4 A .... silent\na5 A ...",
        asked(4, 1, key=None),
    ),
    "no gang of 3 nodes fits (at most 1 node fits together): "
    "2 nodes with no free NVLink island or NUMA node that large; 1 node free, but too few": (
        "a1 A #...|#...\na2 A #...|#...\nb1 - ....",
        asked(4, 3, key=None, topology="nvlink-all"),
    ),
    "no node fits: 1 node without an NVLink island or NUMA node that large"
    "; waiting does not help, since at most 0 nodes could ever fit together": (
        "a1 A ..|..",
        asked(4, 1, key=None, topology="nvlink-all"),
    ),
    "no node fits: the pool has no nodes": ("", asked(1, 1, key=None)),
}


@pytest.mark.parametrize("sentence", GOLDEN)
def test_a_refusal_says_what_would_have_fitted_and_what_stands_in_the_way(sentence: str) -> None:
    drawing, request = GOLDEN[sentence]

    assert drawn(plan(pool(drawing), request)) == sentence


def refused(drawing: str, request: Request, excluded: frozenset[str] = frozenset()) -> Refusal:
    answer = plan(pool(drawing), request, excluded=excluded)
    assert isinstance(answer, Refusal)
    return answer


def test_nodes_that_refused_are_not_said_to_be_booked() -> None:
    answer = refused("a1 A ....\na2 A ....", asked(4, 2), excluded=frozenset({"a2"}))

    assert answer.sentence.endswith(
        ": 1 node that refused or failed just now; 1 node free, but with too few others of the same value"
    )


def test_the_reasons_cover_every_node_once() -> None:
    answer = refused("a1 A ....\na2 A ####\na3 - ....\na4 A xxxx\na5 A .... silent\na6 B .... cordoned", asked(4, 2))

    assert {blocker.code for blocker in answer.blockers} == {
        "tooFewPeers", "booked", "labelMissing", "held", "unreachable", "cordoned",
    }  # fmt: skip
    assert sum(blocker.nodes for blocker in answer.blockers) == 6


def test_most_nodes_come_first_and_the_earliest_return_is_told() -> None:
    booked = pool("a1 A ....\na2 A ....\na3 A ....\na4 A .... silent")
    for node_id, end_ms in (("a1", 7_000), ("a2", 5_000), ("a3", 6_000)):
        booked = booked.with_booking(node_id, Booked(0, end_ms, 0b1111, "rsv"))

    answer = plan(booked, asked(4, 1))

    assert isinstance(answer, Refusal)
    assert answer.blockers == (Blocker("booked", 3, 5_000), Blocker("unreachable", 1, None))


@pytest.mark.parametrize(
    ("drawing", "code"),
    [
        ("a1 A ####\na2 A ####", "doesNotFit"),
        ("a1 A .... silent\na2 A xxxx", "doesNotFit"),
        ("a1 A ....", "neverFits"),
        ("a1 A ....\nb1 B ....", "neverFits"),
        ("a1 A ....\na2 A ...", "neverFits"),
        ("a1 - ....\na2 - ....", "neverFits"),
        ("", "neverFits"),
    ],
)
def test_what_waiting_can_cure_is_told_from_what_it_cannot(drawing: str, code: str) -> None:
    assert refused(drawing, asked(4, 2)).code == code


def test_a_gang_that_does_not_fit_now_fits_in_a_later_window() -> None:
    answer = plan(pool("a1 A ####\na2 A ####"), asked(4, 2, window=Window(2_000, 3_000)))

    assert drawn(answer) == "a1:0123 a2:0123"
    assert KEY in drawn(plan(pool("a1 A ####\na2 A ####"), asked(4, 2, window=Window(1_999, 3_000))))
