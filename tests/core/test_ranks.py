"""The plan is the best of all: every domain that holds the gang, ranked again from the design's own words."""

import re
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.model import Booked, Grouping, Node, Policy, Request
from muster_coordinator.core.placement.gang import shared_out
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_coordinator.core.placement.score import Offer, score, weighed
from muster_coordinator.core.snapshot import NodeView, Snapshot
from muster_shared.devices import atom_numbers
from muster_shared.time import Window
from tests.support.any_pool import gpu_requests, policies, pools, requests
from tests.support.drawings import KEY, asked, drawn, gpus, pool
from tests.support.oracle import best_level, booked_atoms, can_give, domains, free_atoms, held_atoms, size_max, suits

WEIGHTS = ("rank_tightest", "rank_whole_domain", "rank_usable_gaps", "rank_spare")


Group = tuple[str, ...]


class Offered:
    """One node that could take part: what it would give, and how good it is."""

    def __init__(self, node: Node, request: Request, policy: Policy) -> None:
        alone = plan(Snapshot.of("pool", 1, [node]), replace(request, size=1, grouping=Grouping()))
        assert isinstance(alone, Plan)
        self.node = node
        self.mask = alone.members[0].mask
        self.left = sum(
            any(suits(atom, entry) for entry in request.shape.entries)
            for atom in node.atoms
            if atom.number in free_atoms(node, request.window) - set(atom_numbers(self.mask))
        )
        ours = [one for one in node.booked if one.mask & self.mask]
        before = [request.window.start_ms - one.end_ms for one in ours if one.end_ms <= request.window.start_ms]
        after = [one.start_ms - request.window.end_ms for one in ours if one.start_ms >= request.window.end_ms]
        gaps = (min(before, default=None), min(after, default=None))
        self.shreds = sum(gap is not None and 0 < gap < policy.usable_gap_ms for gap in gaps)
        self.points = score(NodeView(node), request, Offer(self.mask, self.left, gaps), weighed(policy))
        self.sound = not held_atoms(node)


Gang = tuple[tuple[int, ...], int, Group, list[tuple[str, Offered]]]
"""A gang as rank, points less than nothing, domain and members, each with the value of its segment."""


def rank_of(costs: tuple[int, ...], policy: Policy) -> tuple[int, ...]:
    """Compare heavy costs first, add up those that weigh the same, and forget those that weigh nothing."""
    weights = [getattr(policy, name) for name in WEIGHTS]
    heaviest_first = sorted({weight for weight in weights if weight}, reverse=True)
    return tuple(sum(cost for cost, own in zip(costs, weights, strict=True) if own == one) for one in heaviest_first)


def gangs(nodes: list[Node], request: Request, policy: Policy, keys: tuple[str, ...]) -> Iterator[Gang]:
    """Every domain that holds the gang; the least is the best."""
    everyone = domains(nodes, request, keys)
    able = domains([node for node in nodes if can_give(node, request)], request, keys)
    for values, parts in able.items():
        if size_max({values: parts}, request) < request.size:
            continue
        sizes: dict[Group, int] = {(segment,): len(of) for segment, of in parts.items()}
        shares = shared_out(sizes, request.size, request.grouping.segment_size or request.size)
        broken, spareless = 0, 0
        members: list[tuple[str, Offered]] = []
        for (segment,), size in sorted(shares.items()):
            group = everyone[values][segment]
            whole = not any(booked_atoms(node, request.window) & {atom.number for atom in node.atoms} for node in group)
            broken += whole and size < len(group)
            offers = [Offered(node, request, policy) for node in parts[segment]]
            offers.sort(key=lambda one: (not one.sound, one.left, -one.points, one.node.id))
            spareless += not any(one.sound for one in offers[size:])
            members += [(segment, one) for one in offers[:size]]
        costs = (
            sum(map(len, parts.values())) - request.size,
            broken,
            sum(one.shreds for _, one in members),
            spareless,
        )
        yield rank_of(costs, policy), -sum(one.points for _, one in members), values, members


def natural(name: str) -> list[int]:
    """The numbers in a name: all names of these pools are alike but for theirs."""
    return [int(part) for part in re.findall("[0-9]+", name)]


def check_best(nodes: list[Node], request: Request, policy: Policy, seed: int) -> None:
    keys = best_level(nodes, request)
    if keys is None:
        return
    answer = plan(Snapshot.of("pool", 1, nodes), request, policy, seed=seed)

    ranked = sorted(gangs(nodes, request, policy, keys), key=lambda one: one[:3])
    equal = [one for one in ranked[: policy.top_n] if one[0] == ranked[0][0]]
    _, _, values, members = equal[seed % len(equal)]
    assert isinstance(answer, Plan)
    assert answer.agreed == tuple(zip(keys, values, strict=True))
    in_order = sorted(members, key=lambda one: (one[0], natural(one[1].node.name), one[1].node.id))
    assert [(one.node_id, one.mask) for one in answer.members] == [(one.node.id, one.mask) for _, one in in_order]


@given(nodes=pools, request=gpu_requests, policy=policies, seed=st.integers(0, 5))
def test_the_plan_is_the_best_of_every_domain_by_any_weights(
    nodes: list[Node], request: Request, policy: Policy, seed: int
) -> None:
    check_best(nodes, request, policy, seed)


@given(nodes=pools, request=requests)
def test_the_plan_is_the_best_of_every_domain_by_default(nodes: list[Node], request: Request) -> None:
    check_best(nodes, request, Policy(), 0)


@given(
    taken=st.lists(st.lists(st.integers(0, 15), min_size=1, max_size=3), min_size=1, max_size=5),
    later=st.lists(st.integers(0, 4), min_size=15, max_size=15),
    policy=st.one_of(policies, policies.map(lambda policy: replace(policy, rank_tightest=9))),
    size=st.integers(1, 2),
)
def test_among_many_domains_alike_the_best_is_found(
    taken: list[list[int]], later: list[int], policy: Policy, size: int
) -> None:
    nodes = [
        Node(
            f"n{at}{number}",
            f"n{at}{number}",
            {KEY: "ABC"[at % 3], "row": "ABC"[at // 3]},
            gpus(4),
            booked=(
                *((Booked(1, 3, mask, "now"),) if mask else ()),
                Booked(3 + later[3 * at + number], 20, 15, "next"),
            ),
        )
        for at, group in enumerate(taken)
        for number, mask in enumerate(group)
    ]
    request = asked(2, size, grouping=Grouping((KEY, "row")), window=Window(1, 3))

    check_best(nodes, request, policy, 0)


def test_where_very_many_domains_are_equally_tight_the_first_by_name_are_weighed() -> None:
    """Scoring is what costs: in an empty pool of thousands it is done for 96 nodes, and never for fewer than topN."""
    line = "n{0} v{0:03} ....{1}"
    last_is_fullest = "\n".join(line.format(at, "####" if at in {95, 96, 199} else "....") for at in range(200))

    assert drawn(plan(pool(last_is_fullest), asked(4, 1))) == "n95:0123"
    far = {drawn(plan(pool(last_is_fullest), asked(4, 1), Policy(top_n=200), seed=seed)) for seed in range(3)}
    assert far == {"n95:0123", "n96:0123", "n199:0123"}


def test_many_whole_domains_never_hide_a_broken_one() -> None:
    whole = "\n".join(f"a{at}{half} v{at:03} ...." for at in range(200) for half in "xy")

    assert drawn(plan(pool(f"{whole}\nz1 z ....\nz2 z ....\nz3 z ####"), asked(4, 1))) == "z1:0123"
