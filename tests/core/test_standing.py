"""A pool that changed, in any way and order, answers like one built anew; and the pool before it like before."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core import occupancy
from muster_coordinator.core import snapshot as versions
from muster_coordinator.core.model import Atom, Booked, Entry, Grouping, Node, Request, Shape
from muster_coordinator.core.placement.pipeline import plan
from muster_coordinator.core.placement.standing import Standing
from muster_coordinator.core.snapshot import FOREVER_MS, Snapshot
from muster_shared.time import Window
from tests.support.any_pool import CODE_BYTES, Digits, node_of, pools, requests
from tests.support.drawings import KEY, asked, devices, drawn, gpus, nodes, pool

CHANGES_MANY = 601  # more than twice those that are kept
RESERVATIONS = ("rsv0", "rsv1", "rsv2")

codes = st.lists(st.binary(min_size=CODE_BYTES, max_size=CODE_BYTES), max_size=8)


@contextmanager
def remembering(changes: int, answers: int = 256, split_at: int = 1_024) -> Iterator[None]:
    """Let answers be forgotten, and buckets of time split, as early as small examples can show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "_CHANGES_KEPT", changes)
        patch.setattr(versions, "_ANSWERS_MAX", answers)
        patch.setattr(occupancy, "SPLIT_AT", split_at)
        yield


def standing(scene: Snapshot, request: Request) -> tuple[object, ...]:
    one = Standing.of(scene, request.shape, request.grouping.required)
    counts = (
        one.members,
        one.names,
        list(one.group_numbers),
        list(one.is_alike),
        list(one.unlike),
        one.closed,
        one.ever,
    )
    layouts = [picks.layout for picks in one.picks]
    # A pool that was wide once keeps wide lanes: what is in them is the same.
    lanes = list(scene.masks(one.lanes))
    return (one.usable, one.reasons, one.groups, [layout.atoms for layout in layouts], lanes, *counts)


def changed(scene: Snapshot, code: bytes, now_ms: int) -> Snapshot:
    """Read one change from the digits of a number: a node reports, one is booked or let go, one joins."""
    digits = Digits(int.from_bytes(code))
    kind, number = digits.one_of(("facts", "booking", "without", "report", "news")), digits.one_of(range(9))
    node_id = f"n{number}"
    if node_id not in scene.views or kind == "news":
        return scene.with_nodes(scene.version + 1, [node_of(number, int.from_bytes(code[::-1]))], now_ms)
    node = scene.views[node_id].node
    if kind == "booking":
        start_ms = digits.one_of(range(6))
        end_ms = digits.one_of((start_ms + 1, start_ms + 3, FOREVER_MS))
        booked = Booked(start_ms, end_ms, digits.one_of(range(1, 32)), digits.one_of(RESERVATIONS))
        return scene.with_booking(node_id, booked)
    if kind == "without":
        return scene.without(digits.one_of(RESERVATIONS), list(scene.views))
    if kind == "report":
        # The same facts, and other bookings.
        return scene.with_nodes(scene.version + 1, [replace(node, booked=node.booked[1:])], now_ms)
    fact: dict[str, object] = digits.one_of(
        [
            {"held": {}},
            {"held": {"xid": 1}},
            {"held": {"xid": 3, "ecc": 8}},
            {"labels": {**node.labels, KEY: "B"}},
            {"labels": {}},
            {"intent": "cordoned"},
            {"intent": "schedulable"},
            {"silent_since_ms": 0},
            {"silent_since_ms": None},
            {"leased": True},
            {"leased": False},
            {"atoms": node.atoms[1:]},
            {"atoms": devices("..[...]")},
            {"atoms": devices("." * 70)},
            {"fault_ms": 1},
            {"name": "host-1"},
        ]
    )
    other = replace(node, **fact)  # type: ignore[arg-type]  # columns of a node, by name
    return scene.with_nodes(scene.version + 1, [other], now_ms)


@given(
    start=pools,
    steps=codes,
    about=st.lists(requests, min_size=1, max_size=3),
    kept=st.sampled_from((1, 2, 256)),
    answers=st.sampled_from((1, 2, 256)),
    split_at=st.sampled_from((1, 3, 1_024)),
    asks=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_a_pool_changed_in_any_way_answers_like_one_built_anew(
    start: list[Node],
    steps: list[bytes],
    about: list[Request],
    kept: int,
    answers: int,
    split_at: int,
    asks: list[bool],
) -> None:
    now_ms = min(request.window.start_ms for request in about)
    with remembering(kept, answers, split_at):
        scene = Snapshot.of("pool", 1, start)
        for code, is_asked in zip(steps, asks, strict=False):
            before = [drawn(plan(scene, request)) for request in about] if is_asked else []
            after = changed(scene, code, now_ms)
            anew = Snapshot.of("pool", 1, [view.node for view in after.views.values()])

            for request in about if is_asked else about[:1]:
                assert standing(after, request) == standing(anew, request)
                assert plan(after, request) == plan(anew, request)
                assert list(after.masks(after.occupancy.during(request.window))) == list(
                    anew.masks(anew.occupancy.during(request.window))
                )
            assert [drawn(plan(scene, request)) for request in about if is_asked] == before
            scene = after


def test_more_changes_than_are_kept_are_answered_anew() -> None:
    scene = pool("a1 A ....\na2 A ....\na3 A ....")
    oldest = scene
    first = drawn(plan(scene, asked(4, 2)))
    healthy, broken = scene.views["a1"].node, replace(scene.views["a1"].node, held={"xid": 1})
    for turn in range(CHANGES_MANY):
        scene = scene.with_nodes(turn, [healthy if turn % 2 else broken])
        if turn % 100 == 1:
            assert drawn(plan(scene, asked(4, 2))) == first

    assert drawn(plan(scene, asked(4, 2))) == "a2:0123 a3:0123"
    assert drawn(plan(scene, asked(3, 3))) == "a1:123 a2:012 a3:012"
    assert drawn(plan(oldest, asked(4, 2))) == first


class Asked:
    """An answer that says how it came about."""

    def __init__(self, said: str) -> None:
        self.said = said

    def revised(self, snapshot: Snapshot, changed: Iterable[int]) -> "Asked":
        names = list(snapshot.views)
        return Asked(f"{self.said}, {' '.join(names[number] for number in changed)}")


def ask(scene: Snapshot, key: str = "question", said: str = "anew") -> str:
    return scene.once(key, lambda _: Asked(said)).said


def facts(scene: Snapshot, *names: str) -> Snapshot:
    flipped = [replace(view.node, leased=not view.node.leased) for name, view in scene.views.items() if name in names]
    return scene.with_nodes(scene.version + 1, flipped)


ABC = "a A .\nb A .\nc A ."


def test_an_answer_is_kept_for_the_question_it_was_given_to() -> None:
    scene = pool(ABC)

    assert [ask(scene, key, key) for key in ("x", "y", "x")] == ["x", "y", "x"]
    assert ask(scene, "x", "not asked again") == "x"


def test_a_booking_changes_no_answer_and_a_fact_is_told_to_it_once() -> None:
    scene = pool(ABC)
    ask(scene)
    booked = scene.with_booking("b", Booked(0, 9, 1, "rsv"))
    one = facts(booked, "b")

    assert ask(booked, said="not asked again") == "anew"
    assert ask(one) == "anew, b"
    more = facts(facts(one, "c", "a"), "c")
    assert ask(more) == "anew, b, a c"
    assert ask(more) == "anew, b, a c"
    assert ask(booked) == "anew"
    assert ask(facts(more, "b")) == "anew, b, a c, b"


def test_an_answer_of_a_booked_pool_is_known_to_the_pool_before_it() -> None:
    scene = pool(ABC)
    assert ask(scene.with_booking("b", Booked(0, 9, 1, "rsv")).without("rsv", ["b"]), said="first") == "first"

    assert ask(scene, said="not asked again") == "first"


@pytest.mark.parametrize(("turns", "said"), [(2, "anew, a b"), (3, "worked out"), (9, "worked out")])
def test_an_answer_is_carried_over_no_more_changes_than_are_kept(turns: int, said: str) -> None:
    scene = pool(ABC)
    ask(scene)
    with remembering(2):
        for turn in range(turns):
            scene = facts(scene, "ab"[turn % 2])

        assert ask(scene, said="worked out") == said
        assert ask(facts(scene, "c"), said="not asked again") == f"{said}, c"


def test_as_many_answers_as_are_kept_are_kept_and_the_oldest_goes_first() -> None:
    scene = pool(ABC)
    with remembering(256, answers=3):
        for key in "pqr":
            ask(scene, key, "first")

        assert [ask(scene, key, "again") for key in "pqr"] == ["first", "first", "first"]
        ask(scene, "one more")
        assert [ask(scene, key, "again") for key in "rqp"] == ["first", "first", "again"]


def test_two_hundred_questions_are_all_remembered() -> None:
    scene = pool(ABC)
    for number in range(200):
        ask(scene, f"q{number}", "first")

    assert {ask(scene, f"q{number}", "again") for number in range(200)} == {"first"}


def test_a_node_that_joins_or_grows_wide_is_one_more_in_order() -> None:
    scene = pool("a A .\nc A .")
    plan(scene, asked(1, 2))
    joined = scene.with_nodes(7, nodes("b A ."))
    grown = joined.with_nodes(8, [replace(joined.views["a"].node, atoms=gpus(65))])

    assert (joined.version, list(joined.views), [joined.number(name) for name in "abcd"]) == (
        7, ["a", "b", "c"], [0, 1, 2, None],
    )  # fmt: skip
    assert drawn(plan(joined, asked(1, 3))) == "a:0 b:0 c:0"
    assert (grown.version, grown.occupancy.lane_bits, joined.occupancy.lane_bits) == (8, 128, 64)
    assert drawn(plan(grown, asked(65))) == f"a:{''.join(map(str, range(65)))}"


@given(numbers=st.lists(st.integers(0, 140), min_size=1, max_size=6, unique=True), window=st.integers(0, 8))
def test_nodes_of_any_width_are_read_from_their_lanes(numbers: list[int], window: int) -> None:
    host = tuple(Atom(number, "gpu", f"GPU-{number}", "H100", 1, 0, gpu=f"GPU-{number}") for number in numbers)
    mask = sum(1 << number for number in numbers)
    busy = Node("b", "b", {KEY: "A"}, host, booked=(Booked(4, 6, mask, "rsv"),))
    scene = Snapshot.of("pool", 1, [Node("a", "a", {KEY: "A"}, host), busy, Node("c", "c", {KEY: "A"}, gpus(1))])
    during = list(scene.masks(scene.occupancy.during(Window(window, window + 1))))

    assert during == [0, mask if window in (4, 5) else 0, 0]


def test_atoms_that_are_gone_are_in_nobody_s_lane() -> None:
    lost = replace(nodes("a A ...")[0], atoms=gpus(1), booked=(Booked(0, 9, 0b111, "x"), Booked(0, 9, 1 << 80, "y")))
    after = pool("a A ....\nb A ....").with_nodes(2, [lost])
    whole = Snapshot.of("pool", 1, [lost, *nodes("b A ....")])

    for scene in (after, whole):
        assert list(scene.masks(scene.occupancy.during(Window(1, 2)))) == [1, 0]
        assert drawn(plan(scene, asked(4, window=Window(1, 2)))) == "b:0123"


def test_a_changed_pool_answers_for_its_own_bookings() -> None:
    first = pool("a1 A ....")
    plan(first, asked(4))
    second = first.with_booking("a1", Booked(0, 9, 0b1111, "rsv"))

    assert (first.views["a1"].free(Window(0, 9)), second.views["a1"].free(Window(0, 9))) == (0b1111, 0)
    assert [drawn(plan(scene, asked(4, window=Window(0, 9))))[:7] for scene in (first, second)] == [
        "a1:0123",
        "no gang",
    ]


def test_windows_before_now_are_forgotten_and_later_ones_are_not() -> None:
    scene = Snapshot.of("pool", 1, [replace(nodes("a A ....")[0], booked=(Booked(5, 9, 15, "rsv"),))])
    later = scene.with_nodes(2, [], now_ms=6)

    assert (scene.version, later.version) == (1, 2)
    assert [later.occupancy.during(Window(at, at + 1)) for at in (6, 8, 9)] == [15, 15, 0]


def test_a_change_that_tells_no_time_forgets_nothing() -> None:
    with remembering(256, split_at=1):
        busy = [Booked(at, at + 1, 1 << at, f"rsv{at}") for at in range(4)]
        scene = Snapshot.of("pool", 1, [replace(nodes("a A ....")[0], booked=tuple(busy))])
        more = scene.with_booking("a", Booked(9, 10, 1, "more"))
        less = scene.without("rsv3", ["a"])

        for one in (scene, more, less):
            assert [one.occupancy.during(Window(at, at + 1)) for at in range(3)] == [1, 2, 4]


def test_questions_that_differ_in_anything_have_answers_of_their_own() -> None:
    scene = pool("a1 A .. rack=r1\na2 A .\na3 - .. rack=r1")
    questions = [
        Request(Shape((Entry("gpu", count),), selector), 1, Grouping(keys), Window(1, 2))
        for count in (1, 2)
        for selector in ((), (("rack", "r1"),))
        for keys in ((), (KEY,), (KEY, "rack"))
    ]
    alone = [drawn(plan(pool("a1 A .. rack=r1\na2 A .\na3 - .. rack=r1"), one)) for one in questions]

    assert [drawn(plan(scene, one)) for one in (*questions, *questions)] == [*alone, *alone]
    assert len(set(alone)) > 2
