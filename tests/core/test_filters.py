"""Each question keeps away the nodes it is for, and says so in its own word."""

from dataclasses import replace

import pytest

from muster_coordinator.core.model import Atom, Node, Shape
from muster_coordinator.core.placement.filters import FILTERS, group_value, standing
from muster_coordinator.core.placement.reasons import PERMANENT
from muster_coordinator.core.snapshot import NodeView, Snapshot
from tests.support.drawings import KEY, asked, nodes, pool

EIGHT = Shape("gpu", 4)


def first_reason(node: Node, shape: Shape = EIGHT) -> str | None:
    known = standing(Snapshot.of("pool", 1, [node]), shape, KEY)
    return known.reasons[node.id].code if known.reasons else None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a1 A ........", None),
        ("a1 A ........ cordoned", "cordoned"),
        ("a1 A ........ draining", "draining"),
        ("a1 A ........ silent", "unreachable"),
        ("a1 A ........ leased", "leased"),
        ("a1 - ........", "labelMissing"),
        ("a1 A ...", "tooFewDevices"),
        ("a1 A ########", None),
        ("a1 A xxxxxxxx", None),
    ],
)
def test_a_node_is_kept_away_for_what_it_is_and_not_for_what_is_booked(line: str, reason: str | None) -> None:
    assert first_reason(nodes(line)[0]) == reason


def test_what_can_never_change_is_said_before_what_may() -> None:
    codes = [
        first_reason(node) for node in nodes("a1 - ... cordoned silent leased\na2 A ........ cordoned silent leased")
    ]

    assert codes == ["labelMissing", "leased"]


def test_every_permanent_reason_is_asked_before_every_passing_one() -> None:
    scenes = nodes("a1 - ........\na2 A ...\na3 A ........ leased\na4 A ........ cordoned\na5 A ........ silent")
    asked_first = [
        next(number for number, question in enumerate(FILTERS) if question(NodeView(node), EIGHT, KEY))
        for node in scenes
    ]

    assert asked_first == sorted(asked_first)


def test_a_selector_wants_every_label_with_that_very_value() -> None:
    node = replace(nodes("a1 A ........")[0], labels={KEY: "A", "rack": "r1", "tier": "x"})
    chosen = {
        selector: first_reason(node, Shape("gpu", 4, selector=selector))
        for selector in ((("rack", "r1"), ("tier", "x")), (("rack", "r1"), ("tier", "y")), (("zone", ""),))
    }

    assert list(chosen.values()) == [None, "selectorMismatch", "selectorMismatch"]


def test_an_island_that_was_never_large_enough_is_permanent() -> None:
    known = pool("a1 A ....|....").once(standing, Shape("gpu", 5, "nvlink-all"), KEY)

    assert known.reasons["a1"].code == "noSuchIsland"
    assert known.reasons["a1"].code in PERMANENT
    assert known.size_ever == 0


@pytest.mark.parametrize(
    ("kind", "model", "memory_mib", "suits"),
    [
        ("gpu", None, 0, True),
        ("gpu", "h100", 81_920, True),
        ("gpu", "H200", 0, False),
        ("gpu", None, 81_921, False),
        ("mig", None, 0, False),
    ],
)
def test_devices_suit_by_kind_model_and_memory(kind: str, model: str | None, memory_mib: int, suits: bool) -> None:  # noqa: FBT001 - a column of the table
    atom = Atom(0, "gpu", "GPU-0", "NVIDIA H100 80GB HBM3", 81_920, 0)
    shape = Shape("mig" if kind == "mig" else "gpu", 1, model=model, memory_mib=memory_mib)

    assert NodeView(replace(nodes("a1 A .")[0], atoms=(atom,))).suitable(shape) == suits


ZERO = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("value", ["", "  ", "0", "000", "0.0", ZERO, f"{ZERO}.0", f"{ZERO}.7"])
def test_a_blank_or_zero_value_forms_no_group(value: str) -> None:
    assert group_value(NodeView(replace(nodes("a1 A .")[0], labels={KEY: value})), KEY) is None


@pytest.mark.parametrize("value", ["A", "r0", "10", "0.5", "5e1f0000-0000-0000-0000-000000000000.0"])
def test_any_other_value_forms_a_group_of_its_own(value: str) -> None:
    assert group_value(NodeView(replace(nodes("a1 A .")[0], labels={KEY: f" {value} "})), KEY) == value


def test_what_could_ever_fit_counts_one_group_and_no_missing_label() -> None:
    known = standing(pool("a1 A ....\na2 A .... silent\nb1 B ####\nc1 - ....\nc2 - ....\nc3 - ...."), EIGHT, KEY)

    assert known.size_ever == 2


def test_an_answer_is_kept_for_the_shape_and_key_it_was_given_for() -> None:
    snapshot = pool("a1 A ........\nb1 - ........")
    few, many = asked(4).shape, asked(9).shape

    kept = [len(snapshot.once(standing, shape, key).reasons) for shape, key in [(few, KEY), (many, KEY), (few, None)]]

    assert kept == [1, 2, 0]
