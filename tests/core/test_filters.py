"""Each question keeps away the nodes it is for, and says so in its own word."""

from dataclasses import replace

import pytest
from hypothesis import given

from muster_coordinator.core.model import Entry, Node, Request, Shape
from muster_coordinator.core.placement.filters import FILTERS, first_reason, group_of, group_value
from muster_coordinator.core.placement.reasons import PERMANENT, ReasonCode
from muster_coordinator.core.snapshot import NodeView
from tests.support.any_pool import pools, requests
from tests.support.drawings import KEY, RACK, asked, nodes
from tests.support.oracle import could_ever_give

FOUR = asked(4).shape


def reason(node: Node, shape: Shape = FOUR, keys: tuple[str, ...] = (KEY,)) -> ReasonCode | None:
    found = first_reason(NodeView(node), shape, keys)
    return None if found is None else found.code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("a1 A ........", None),
        ("a1 A ........ cordoned", "cordoned"),
        ("a1 A ........ draining", "draining"),
        ("a1 A ........ silent", "unreachable"),
        ("a1 A ........ leased", "leased"),
        ("a1 - ........", "labelMissing"),
        ("a1 A ...", "tooFewDevices"),
        ("a1 A ...[....]", "tooFewDevices"),
        ("a1 A ########", None),
        ("a1 A xxxxxxxx", None),
    ],
)
def test_a_node_is_kept_away_for_what_it_is_and_not_for_what_is_booked(line: str, code: str | None) -> None:
    assert reason(nodes(line)[0]) == code


def test_what_can_never_change_is_said_before_what_may() -> None:
    codes = [reason(node) for node in nodes("a1 - ... cordoned silent leased\na2 A ........ cordoned silent leased")]

    assert codes == ["labelMissing", "leased"]


def test_every_permanent_reason_is_asked_before_every_passing_one() -> None:
    scenes = nodes("a1 - ........\na2 A ...\na3 A ........ leased\na4 A ........ cordoned\na5 A ........ silent")
    found = [[question(NodeView(node), FOUR, (KEY,)) for question in FILTERS] for node in scenes]
    asked_first = [next(number for number, one in enumerate(answers) if one) for answers in found]

    assert asked_first == sorted(asked_first)
    codes = [one.code for answers in found for one in answers if one is not None]
    assert [code in PERMANENT for code in codes] == [True, True, False, False, False]


def test_a_selector_wants_every_label_with_that_very_value() -> None:
    node = nodes("a1 A ........ rack=r1 tier=x")[0]
    chosen = [
        reason(node, replace(FOUR, selector=selector))
        for selector in ((("rack", "r1"), ("tier", "x")), (("rack", "r1"), ("tier", "y")), (("zone", ""),))
    ]

    assert chosen == [None, "selectorMismatch", "selectorMismatch"]


def test_a_node_that_is_not_selected_is_not_said_to_lack_a_label() -> None:
    assert reason(nodes("a1 - ...")[0], replace(FOUR, selector=(("rack", "r1"),))) == "selectorMismatch"


@pytest.mark.parametrize(
    ("line", "entries", "code"),
    [
        ("a1 A ....|....", (Entry("gpu", 5, "nvlink-all"),), "noSuchIsland"),
        ("a1 A .... numa:aabb", (Entry("gpu", 3, "numa"),), "noSuchIsland"),
        ("a1 A ....", (Entry("gpu", 5, "nvlink-all"),), "tooFewDevices"),
        ("a1 A ..|..", (Entry("gpu", 2), Entry("gpu", 2, "nvlink-all")), None),
        ("a1 A ..|.", (Entry("gpu", 2), Entry("gpu", 2, "nvlink-all")), "tooFewDevices"),
        ("a1 A .|.|.", (Entry("gpu", 1), Entry("gpu", 2, "nvlink-all")), "noSuchIsland"),
    ],
)
def test_an_island_that_was_never_large_enough_is_permanent(
    line: str, entries: tuple[Entry, ...], code: ReasonCode | None
) -> None:
    assert reason(nodes(line)[0], Shape(entries)) == code
    assert code is None or code in PERMANENT


@given(pool=pools, request=requests)
def test_a_reason_is_permanent_exactly_where_no_wait_and_no_operator_helps(pool: list[Node], request: Request) -> None:
    for node in pool:
        code = reason(node, request.shape, request.grouping.required)
        labels = [node.labels.get(key, "") for key in request.grouping.required]

        assert (code in PERMANENT) == (
            not could_ever_give(node, request) or not all(label in {"A", "B", "C"} for label in labels)
        )


ZERO = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("value", ["", "  ", "0", "000", "0.0", ZERO, f"{ZERO}.0", f"{ZERO}.7"])
def test_a_blank_or_zero_value_forms_no_group(value: str) -> None:
    assert group_value(NodeView(replace(nodes("a1 A .")[0], labels={KEY: value})), KEY) is None


@pytest.mark.parametrize("value", ["A", "r0", "10", "0.5", "5e1f0000-0000-0000-0000-000000000000.0"])
def test_any_other_value_forms_a_group_of_its_own(value: str) -> None:
    assert group_value(NodeView(replace(nodes("a1 A .")[0], labels={KEY: f" {value} "})), KEY) == value


def test_a_group_is_named_by_every_value_in_the_order_of_the_keys() -> None:
    view, other = (NodeView(node) for node in nodes("a1 A . rack=r1\na2 A . rack=0"))

    assert (group_of(view, (KEY, RACK)), group_of(view, (RACK, KEY))) == (("A", "r1"), ("r1", "A"))
    assert (group_of(other, (KEY, RACK)), group_of(other, (KEY,)), group_of(other, ())) == (None, ("A",), ())
