"""The storm brake: modes of domains and of the pool, how much may move, and which nodes take nobody over."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from muster_coordinator.core.model import Node, Policy
from muster_coordinator.core.repair.brake import (
    MOVES_KEPT_MS,
    POOL,
    RECENT_MS,
    URGENT_MS,
    Mode,
    Storm,
    held_until_ms,
    relaxed,
)
from muster_coordinator.core.repair.brake import storm as judged
from muster_coordinator.core.repair.flaps import DAY_MS, flapping_until_ms, with_flip
from muster_coordinator.core.repair.targets import is_steady, untrusted
from muster_coordinator.core.snapshot import Snapshot
from tests.support.drawings import nodes

NOW_MS = 10 * DAY_MS
MINUTE_MS = 60_000


def storm(pool: Sequence[Node], now_ms: int) -> Storm:
    return judged(Snapshot.of("pool", 1, pool), now_ms)


def fallen(domains: str, since_ms: int = NOW_MS) -> list[Node]:
    """Return nodes from `AAAa Bb`: a letter is a node of that domain, small when it is silent."""
    found: list[Node] = []
    for letter in domains.replace(" ", ""):
        (node,) = nodes(f"n{len(found):03} {letter.upper()} ....")
        silent_ms = since_ms if letter.islower() else None
        found.append(replace(node, home_domain=letter.upper(), silent_since_ms=silent_ms))
    return found


@pytest.mark.parametrize(
    ("domains", "modes"),
    [
        ("AAAA BBBB CCCC", {}),
        ("AAAa BBBB CCCC", {}),  # one node alone is no storm, however small its domain
        ("Aa BBBBBBBB CCCC", {}),
        ("AAaa BBBBBBBB CCCC", {"A": "partial"}),
        ("AAAAAAAAAAAAAAAaa BBBB", {}),  # two of seventeen
        ("AAAAAAAAAAAAAAaaa BBBB", {"A": "partial"}),  # three
        ("aa BBBBBBBBBBBB", {"A": "domainLost"}),
        ("aaaa BBBBBBBBBBBB CC", {"A": "domainLost"}),
        ("Aaa Bbb CCCCCC", {"A": "partial", "B": "partial", POOL: "partial"}),
        ("Aaa Bb Cc Dd Ee", {POOL: "partial", "A": "partial"}),  # 54.5 %
        ("AAAa Bbbb Cccc", {POOL: "poolDark"}),  # one alarm, not one for each domain
        ("aaaa bbbb", {POOL: "cutOff"}),
        ("a", {POOL: "cutOff"}),
    ],
)
def test_modes_follow_from_the_share_of_nodes_that_fell_lately(domains: str, modes: dict[str, Mode]) -> None:
    assert storm(fallen(domains), NOW_MS).modes == modes


def test_what_fell_long_ago_is_no_storm_unless_all_is_silent() -> None:
    old_ms = NOW_MS - RECENT_MS

    assert storm(fallen("AAaa BBBBBBBB", old_ms), NOW_MS).modes == {"A": "partial"}
    assert storm(fallen("AAaa BBBBBBBB", old_ms - 1), NOW_MS).modes == {}
    assert storm(fallen("aaaa bbbb", old_ms - 1), NOW_MS).is_dark
    assert not storm(fallen("aaaa bbbB", old_ms - 1), NOW_MS).is_dark


def test_a_domain_is_lost_with_its_last_node_and_what_fell_before_counts_as_down() -> None:
    first, second, *others = fallen("aa BBBBBBBB")
    third, *_ = fallen("a", NOW_MS - RECENT_MS - 1)

    assert storm([first, second, replace(third, id="n9"), *others], NOW_MS).modes == {"A": "domainLost"}


@pytest.mark.parametrize(
    "bad",
    [
        {"held": {"xid": 1}, "fault_ms": NOW_MS},
        {"held": {"deviceLost": 1}, "turned_ms": NOW_MS},
        {"labels": {}, "turned_ms": NOW_MS},  # it shows no fabric any more
    ],
)
def test_a_fault_and_a_fabric_that_is_gone_count_like_silence(bad: dict[str, object]) -> None:
    well = fallen("AAAAAA BBBBBBBB")
    struck = [replace(node, **bad) for node in well[:3]]  # type: ignore[arg-type]  # columns of a node, by name

    assert storm([*struck, *well[3:]], NOW_MS).modes == {"A": "partial"}
    assert storm([*struck, *well[3:]], NOW_MS).bad == {"A": 3}


def test_operators_make_no_storm_and_nodes_that_never_reported_count_for_nothing() -> None:
    (cordoned,) = nodes("c1 A .... cordoned")
    never = [replace(node, id=f"never{node.id}", silent_since_ms=0) for node in fallen("aaaaaaaa")]

    assert storm([replace(cordoned, id=f"c{at}", home_domain="A") for at in range(9)], NOW_MS).modes == {}
    assert storm([*fallen("AAAA"), *never], NOW_MS).modes == {}


CALM = Storm(40, {}, {})
START_MS = NOW_MS + 60 * MINUTE_MS


@pytest.mark.parametrize(
    ("found", "before_ms", "moves", "held_ms"),
    [
        (CALM, 60 * MINUTE_MS, [], None),
        (CALM, 60 * MINUTE_MS, [NOW_MS - MINUTE_MS], None),
        (CALM, 60 * MINUTE_MS, [NOW_MS - MINUTE_MS + 1], NOW_MS + 1),
        (CALM, 30_000, [NOW_MS], NOW_MS + 30_000),  # at the start the rate is not asked
        (CALM, 0, [NOW_MS], None),
        (Storm(200, {}, {}), 60 * MINUTE_MS, [NOW_MS, NOW_MS - 5], None),
        (Storm(200, {}, {}), 60 * MINUTE_MS, [NOW_MS, NOW_MS - 9, NOW_MS - 5], NOW_MS - 9 + MINUTE_MS),
        (Storm(40, {"A": "partial"}, {}), URGENT_MS + 1, [], NOW_MS + 1),
        (Storm(40, {"A": "partial"}, {}), URGENT_MS, [], None),
        (Storm(40, {"A": "partial"}, {}), URGENT_MS, [NOW_MS - MINUTE_MS], NOW_MS + MINUTE_MS),
        (Storm(40, {"A": "partial"}, {}), 0, [NOW_MS], None),
        (Storm(40, {"B": "partial"}, {}), 60 * MINUTE_MS, [], None),
        (Storm(40, {POOL: "partial"}, {}), URGENT_MS + 1, [], NOW_MS + 1),
        (Storm(40, {"A": "domainLost"}, {}), 5, [], NOW_MS + 5),
        (Storm(40, {"A": "domainLost"}, {}), 0, [NOW_MS], None),
        (Storm(40, {POOL: "poolDark"}, {}), 0, [], NOW_MS + MINUTE_MS),
        (Storm(40, {POOL: "cutOff"}, {}), 0, [], NOW_MS + MINUTE_MS),
    ],
)
def test_the_brake_lets_move_what_the_table_says(
    found: Storm, before_ms: int, moves: Sequence[int], held_ms: int | None
) -> None:
    assert held_until_ms(found, ["A"], NOW_MS + before_ms, moves, NOW_MS) == held_ms


def test_half_the_rate_is_twice_the_time_for_as_many() -> None:
    partial = Storm(300, {"A": "partial"}, {})

    def moved(found: Storm, domains: Sequence[str]) -> int:
        moves: list[int] = []
        for now_ms in range(NOW_MS, NOW_MS + 10 * MINUTE_MS, 1_000):
            recent = [move for move in moves if move > now_ms - MOVES_KEPT_MS]
            if held_until_ms(found, domains, now_ms + URGENT_MS, recent, now_ms) is None:
                moves.append(now_ms)
        return len(moves)

    assert (moved(Storm(300, {}, {}), []), moved(partial, ["A"])) == (40, 20)


def test_only_where_the_brake_eased_is_anything_looked_at_again() -> None:
    before: dict[str, Mode] = {"A": "domainLost", "B": "partial", "C": "partial", POOL: "poolDark"}
    now: dict[str, Mode] = {"A": "partial", "B": "domainLost", "C": "partial", "D": "partial"}

    assert relaxed(before, now) == {"A", POOL}


POLICY = Policy(healthy_after_ms=100)


def test_a_node_takes_over_only_once_it_has_been_sound_for_long() -> None:
    (node,) = nodes("a1 A ....")

    assert is_steady(node, NOW_MS, POLICY)
    for column in ("sound_since_ms", "fault_ms"):
        assert not is_steady(replace(node, **{column: NOW_MS - 99}), NOW_MS, POLICY)  # type: ignore[arg-type]  # a column by its name
        assert is_steady(replace(node, **{column: NOW_MS - 100}), NOW_MS, POLICY)  # type: ignore[arg-type]  # a column by its name
    assert not is_steady(replace(node, flapping_until_ms=NOW_MS + 1), NOW_MS, POLICY)


def test_no_node_of_a_falling_domain_takes_anybody_over() -> None:
    pool = fallen("AAaa BBB")

    assert untrusted(Snapshot.of("pool", 1, pool), storm(pool, NOW_MS), NOW_MS, POLICY) == {
        node.id for node in pool if node.home_domain == "A"
    }


def test_more_than_three_turns_a_day_are_flapping_until_the_day_is_over() -> None:
    three = [NOW_MS - 3, NOW_MS - 2, NOW_MS - 1]

    assert flapping_until_ms(three, NOW_MS) == 0
    four = with_flip(three, NOW_MS)
    assert flapping_until_ms(four, NOW_MS) == NOW_MS - 3 + DAY_MS
    assert flapping_until_ms(four, NOW_MS - 3 + DAY_MS) == 0
    assert flapping_until_ms(with_flip(four, NOW_MS + 9), NOW_MS + 9) == NOW_MS - 2 + DAY_MS


def test_turns_are_forgotten_after_a_day() -> None:
    assert with_flip([5, NOW_MS - DAY_MS, NOW_MS - DAY_MS + 1], NOW_MS) == [NOW_MS - DAY_MS + 1, NOW_MS]
