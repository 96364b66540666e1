"""The storm brake: where much breaks at once, little is moved, and then nothing.

A domain is a value of `fabric.domain`; a node that shows none belongs to the one that it showed last.

Source: facts on reliability, section 3.2, whose table this is. Two readings of it are ours: one node alone is no storm,
however small its domain; and silence of every node is the coordinator's own, however long it lasts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from muster_coordinator.core.model import Node
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.wire import FABRIC_DOMAIN

Mode = Literal["normal", "partial", "domainLost", "poolDark", "cutOff"]
"""Of the table; `cutOff` is a dark pool of which every node is silent."""

RECENT_MS: Final = 600_000  # what turned bad longer ago is no storm any more
URGENT_MS: Final = 900_000  # bookings that start within it move even while a domain is falling
MOVES_KEPT_MS: Final = 120_000  # in which half the rate is counted
_MINUTE_MS: Final = 60_000
_PARTIAL_PERCENT: Final = 25  # as are the next two: of the table
_PARTIAL_NODES: Final = 3  # of one domain
_DARK_PERCENT: Final = 55  # more than a pool loses by itself
_LEAST: Final = 2  # nodes

POOL: Final = ""
"""The key of the whole pool among the domains."""

_STRICTNESS: Final[Mapping[Mode, int]] = {"normal": 0, "partial": 1, "domainLost": 2, "poolDark": 3, "cutOff": 4}
_DARK: Final[frozenset[Mode]] = frozenset({"poolDark", "cutOff"})


@dataclass(frozen=True, slots=True)
class Storm:
    """How much of a pool turned bad or silent lately."""

    nodes: int  # of the pool
    modes: Mapping[str, Mode]  # by domain, `POOL` for the whole pool; those that are normal are left out
    bad: Mapping[str, int]  # nodes that turned lately, by the same keys

    @property
    def is_dark(self) -> bool:
        """Is so much gone that the fault is likely to be the coordinator's?"""
        return self.modes.get(POOL) in _DARK

    def is_in(self, node: Node) -> bool:
        """Is the node's domain falling?"""
        return bool(node.home_domain) and node.home_domain in self.modes

    def mode_at(self, domains: Iterable[str]) -> Mode:
        """Return the strictest mode of the pool and some domains of it."""
        here: list[Mode] = [self.modes.get(key, "normal") for key in (POOL, *domains)]
        return max(here, key=_STRICTNESS.__getitem__)


@dataclass(frozen=True, slots=True)
class Fallen:
    """The nodes of a pool that are silent or show a bad sign. Carried on while no node's facts change."""

    totals: Counter[str]  # nodes by domain; those that never reported count for nothing
    bad: tuple[Node, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Fallen":
        """Ask every node, or carry on what is known of this pool."""
        return snapshot.once(("fallen",), cls._asked)

    @classmethod
    def _asked(cls, snapshot: Snapshot) -> "Fallen":
        nodes = [view.node for view in snapshot.ordered]
        totals = Counter(node.home_domain for node in nodes if node.silent_since_ms != 0)
        return cls(totals, tuple(node for node in nodes if is_bad(node)))

    def revised(self, snapshot: Snapshot, changed: Iterable[int]) -> "Fallen":
        """Return those of a pool in which some nodes have changed."""
        del changed  # a look at all of them is as cheap as a look at the totals
        return self._asked(snapshot)


def storm(snapshot: Snapshot, now_ms: int) -> Storm:
    """Judge a pool as it is now, ms UTC. Cost: in nodes once after each change of their facts, else in bad ones."""
    fallen = Fallen.of(snapshot)
    total = fallen.totals.copy()
    total[POOL] = fallen.totals.total()
    down: Counter[str] = Counter()
    lately: Counter[str] = Counter()
    silent = 0
    for node in fallen.bad:
        keys = {POOL, node.home_domain}
        silent += not node.reachable
        down.update(keys)
        since_ms = _bad_since_ms(node)
        if since_ms is not None and now_ms - since_ms <= RECENT_MS:
            lately.update(keys)
    modes: dict[str, Mode] = {}
    for key, bad in lately.items():
        mode = _pool_mode(bad, total[POOL]) if key == POOL else _domain_mode(bad, down[key], total[key])
        if mode != "normal":
            modes[key] = mode
    if silent and silent == total[POOL]:
        return Storm(silent, {POOL: "cutOff"}, {POOL: silent})
    if modes.get(POOL) == "poolDark":
        modes = {POOL: "poolDark"}  # one alarm, not one for each domain
    return Storm(total[POOL], modes, {key: lately[key] for key in modes})


def _bad_since_ms(node: Node) -> int | None:
    if node.silent_since_ms is not None:
        return node.silent_since_ms
    if any(node.held.values()) or not shows_home(node):
        return max(node.fault_ms, node.turned_ms)
    return None


def is_bad(node: Node) -> bool:
    """Is the node silent, or does it show a bad sign? One that never reported is nothing yet."""
    return node.silent_since_ms != 0 and _bad_since_ms(node) is not None


def shows_home(node: Node) -> bool:
    """Does the node show a fabric domain, if it ever did?"""
    return not node.home_domain or node.labels.get(FABRIC_DOMAIN) == node.home_domain


def _pool_mode(bad: int, nodes: int) -> Mode:
    if bad >= _LEAST and bad * 100 >= nodes * _DARK_PERCENT:
        return "poolDark"
    return "partial" if bad >= _LEAST and bad * 100 >= nodes * _PARTIAL_PERCENT else "normal"


def _domain_mode(bad: int, down: int, nodes: int) -> Mode:
    if bad < _LEAST:
        return "normal"
    if down == nodes:
        return "domainLost"
    return "partial" if bad >= _PARTIAL_NODES or bad * 100 >= nodes * _PARTIAL_PERCENT else "normal"


def held_until_ms(found: Storm, domains: Iterable[str], start_ms: int, moves: Sequence[int], now_ms: int) -> int | None:
    """Return until when the brake keeps a booking where it is; None where it may move now.

    Args:
        found: The storm.
        domains: Of the nodes that it would leave.
        start_ms: Of the booking; at its start it may move whatever the rate, but in a dark pool.
        moves: Instants of the moves of the last minutes, in any order.
        now_ms: Milliseconds UTC.
    """
    mode = found.mode_at(domains)
    if mode in _DARK:
        return now_ms + _MINUTE_MS
    if now_ms >= start_ms:
        return None
    if mode == "domainLost":
        return start_ms
    if mode == "partial" and start_ms - now_ms > URGENT_MS:
        return start_ms - URGENT_MS
    window_ms = MOVES_KEPT_MS if mode == "partial" else _MINUTE_MS  # half the rate: twice the time for as many
    recent = sorted(move for move in moves if move > now_ms - window_ms)
    most = 1 + found.nodes // 100
    return None if len(recent) < most else min(start_ms, recent[-most] + window_ms)


def relaxed(before: Mapping[str, Mode], now: Mapping[str, Mode]) -> frozenset[str]:
    """Return the domains, or `POOL`, in which more may be moved than before."""
    return frozenset(key for key, mode in before.items() if _STRICTNESS[now.get(key, "normal")] < _STRICTNESS[mode])
