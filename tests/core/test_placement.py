"""The plan against an oracle that tries everything, on pools small enough for it."""

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Booked, Intent, Node, Request
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.devices import Topology, atom_numbers
from muster_shared.time import Window
from tests.support.drawings import KEY, asked, gpus

VALUES = ("A", "A", "A", "B", "B", "", "00000000-0000-0000-0000-000000000000.3", None)  # the last three form no group
GROUPS = frozenset("AB")
INTENTS: tuple[Intent, ...] = ("schedulable", "schedulable", "schedulable", "cordoned", "draining")
CODES = 1 << 52  # more than all digits of a node with three bookings

T = TypeVar("T")

windows = st.tuples(st.integers(0, 5), st.integers(1, 4)).map(lambda span: Window(span[0], span[0] + span[1]))
booked = st.builds(
    lambda window, mask: Booked(window.start_ms, window.end_ms, mask, "rsv"), windows, st.integers(1, 15)
)


def node_of(number: int, code: int) -> Node:
    """Read a node from the digits of a number: quicker to draw than its parts, and it shrinks too."""

    def digit(options: Sequence[T]) -> T:
        nonlocal code
        code, chosen = divmod(code, len(options))
        return options[chosen]

    def booking() -> Booked:
        start_ms, duration_ms = digit(range(6)), digit(range(1, 5))
        return Booked(start_ms, start_ms + duration_ms, digit(range(1, 16)), "rsv")

    value = digit(VALUES)
    return Node(
        id=f"n{number}",
        name=f"host-{digit(range(9))}",
        labels={} if value is None else {KEY: value},
        atoms=gpus(4, digit([(0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 1, 1)])),
        intent=digit(INTENTS),
        silent_since_ms=digit([None, None, None, 0]),
        leased=digit([False, False, False, True]),
        held=digit([{}, {}, {"xid": 0b0001}, {"xid": 0b0001, "ecc": 0b1000}]),
        booked=tuple(sorted((booking() for _ in range(digit(range(4)))), key=lambda one: one.start_ms)),
    )


pools = st.lists(st.integers(0, CODES), max_size=6).map(
    lambda codes: [node_of(number, code) for number, code in enumerate(codes)]
)
requests = st.builds(
    asked,
    count=st.integers(1, 4),
    size=st.integers(1, 3),
    key=st.sampled_from([KEY, KEY, None]),
    topology=st.sampled_from(["any", "nvlink-all"]),
    window=windows,
)


def free_atoms(node: Node, window: Window) -> set[int]:
    """The atoms that nothing holds and nobody has booked at any instant of the window."""
    free = {atom.number for atom in node.atoms}
    for mask in node.held.values():
        free -= set(atom_numbers(mask))
    for instant in range(window.start_ms, window.end_ms):
        for one in node.booked:
            if instant in range(one.start_ms, one.end_ms):
                free -= set(atom_numbers(one.mask))
    return free


def serves(node: Node, atoms: set[int], count: int, topology: Topology) -> bool:
    """Do these atoms answer the request on this node?"""
    islands = {atom.island for atom in node.atoms if atom.number in atoms}
    return len(atoms) == count and (topology == "any" or len(islands) == 1)


def can_give(node: Node, request: Request) -> bool:
    if node.intent != "schedulable" or node.leased or node.silent_since_ms is not None:
        return False
    free = free_atoms(node, request.window)
    shape = request.shape
    return any(serves(node, set(choice), shape.count, shape.topology) for choice in combinations(free, shape.count))


def peers(pool: list[Node], request: Request) -> list[list[Node]]:
    """The nodes that can give their part, by the value on which they would have to agree."""
    able = [node for node in pool if can_give(node, request)]
    if request.topology_key is None:
        return [able]
    return [[node for node in able if node.labels.get(KEY) == value] for value in sorted(GROUPS)]


@given(pool=pools, request=requests, excluded=st.frozensets(st.sampled_from(["n0", "n1", "n2"]), max_size=2))
def test_a_plan_exists_exactly_where_trying_everything_finds_one(
    pool: list[Node], request: Request, excluded: frozenset[str]
) -> None:
    allowed = [node for node in pool if node.id not in excluded]
    size_max = max(map(len, peers(allowed, request)))

    answer = plan(Snapshot.of("pool", 1, pool), request, excluded=excluded)

    if size_max < request.size:
        assert isinstance(answer, Refusal)
        assert answer.size_max == size_max
        assert sum(blocker.nodes for blocker in answer.blockers) == len(pool)
    else:
        assert isinstance(answer, Plan)


@given(pool=pools, request=requests, excluded=st.frozensets(st.sampled_from(["n0", "n1", "n2"]), max_size=2))
def test_a_plan_is_a_whole_gang_of_distinct_nodes_that_agree_and_are_free_throughout(
    pool: list[Node], request: Request, excluded: frozenset[str]
) -> None:
    answer = plan(Snapshot.of("pool", 1, pool), request, excluded=excluded)

    if isinstance(answer, Plan):
        by_id = {node.id: node for node in pool}
        chosen = [by_id[member.node_id] for member in answer.members]
        assert len({node.id for node in chosen}) == len(chosen) == request.size
        assert not excluded & {node.id for node in chosen}
        assert all(can_give(node, request) for node in chosen)
        if request.topology_key is not None:
            assert answer.topology_value in GROUPS
            assert {node.labels[KEY] for node in chosen} == {answer.topology_value}
        for node, member in zip(chosen, answer.members, strict=True):
            atoms = set(atom_numbers(member.mask))
            assert atoms <= free_atoms(node, request.window)
            assert serves(node, atoms, request.shape.count, request.shape.topology)


@given(pool=pools, request=requests)
def test_no_group_that_holds_the_gang_is_tighter_than_the_chosen_one(pool: list[Node], request: Request) -> None:
    answer = plan(Snapshot.of("pool", 1, pool), request)

    if isinstance(answer, Plan):
        groups = [group for group in peers(pool, request) if len(group) >= request.size]
        chosen = next(group for group in groups if answer.members[0].node_id in {node.id for node in group})
        assert len(chosen) == min(map(len, groups))


@given(pool=pools, request=requests, seed=st.integers(0, 9), shuffle=st.randoms(use_true_random=False))
def test_no_order_of_what_is_put_in_changes_the_answer(
    pool: list[Node], request: Request, seed: int, shuffle: random.Random
) -> None:
    def shuffled(node: Node) -> Node:
        labels, held, atoms, bookings = (
            list(node.labels.items()),
            list(node.held.items()),
            [*node.atoms],
            [*node.booked],
        )
        for part in (labels, held, atoms, bookings):
            shuffle.shuffle(part)
        return replace(node, labels=dict(labels), held=dict(held), atoms=tuple(atoms), booked=tuple(bookings))

    other = [shuffled(node) for node in pool]
    shuffle.shuffle(other)
    first, second = (plan(Snapshot.of("pool", 1, way), request, seed=seed, top_n=3) for way in (pool, other))

    assert first == second


@given(pool=pools, request=requests)
def test_within_one_value_the_answer_is_that_of_a_pool_of_this_value_alone(pool: list[Node], request: Request) -> None:
    keyed = replace(request, topology_key=KEY)
    only_a = [node for node in pool if node.labels.get(KEY) == "A"]

    inside, alone = plan(Snapshot.of("pool", 1, pool), keyed, within="A"), plan(Snapshot.of("pool", 1, only_a), keyed)

    assert (inside == alone) if isinstance(alone, Plan) else isinstance(inside, Refusal)


@given(pool=pools, request=requests, more=booked)
def test_a_pool_changed_by_a_booking_is_planned_like_one_built_with_it(
    pool: list[Node], request: Request, more: Booked
) -> None:
    built = [replace(node, booked=(*node.booked, more)) if node.id == "n0" else node for node in pool]
    changed = Snapshot.of("pool", 1, pool)
    plan(changed, request)  # so that whatever is kept for later has been worked out before the change
    if pool:
        changed = changed.with_booking("n0", more)

    assert plan(changed, request) == plan(Snapshot.of("pool", 1, built), request)


MANY_PLANS = f"""
from random import Random
from muster_coordinator.core.model import Booked, Node
from muster_coordinator.core.placement.pipeline import plan
from muster_coordinator.core.snapshot import Snapshot
from tests.support.drawings import KEY, asked, gpus

chance = Random(1)
pool = Snapshot.of("pool", 1, [
    Node(f"n{{i}}", f"n{{i}}", {{KEY: f"v{{i % 4}}", "rack": f"r{{i % 3}}"}}, gpus(4),
         held={{"xid": 1, "ecc": 2}} if i % 5 == 0 else {{}}, booked=(Booked(0, 9, chance.randrange(1, 16), "rsv"),))
    for i in range(24)
])
for key in ({KEY!r}, "rack", None):
    for count in (1, 2, 3, 4):
        for size in (1, 2, 4, 30):
            print(plan(pool, asked(count, size, key), seed=size, top_n=3))
"""


def test_the_seed_of_python_s_hashes_changes_no_answer() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", MANY_PLANS],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True, timeout=60,
        ).stdout
        for seed in ("0", "1", "12345")
    }  # fmt: skip

    assert len(said) == 1
    assert min(map(len, said)) > 0
