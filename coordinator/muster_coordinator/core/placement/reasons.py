"""Refusals as values, and the one place that words them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from muster_shared.time import format_instant

ReasonCode = Literal[
    "unreachable",
    "cordoned",
    "draining",
    "leased",
    "excluded",
    "selectorMismatch",
    "labelMissing",
    "tooFewDevices",
    "noSuchIsland",
    "held",
    "maintenance",
    "booked",
    "islandBooked",
    "tooFewPeers",
]
"""Why a node does not take part, in the order in which the questions are asked."""

PERMANENT: Final[frozenset[ReasonCode]] = frozenset(
    {"selectorMismatch", "labelMissing", "tooFewDevices", "noSuchIsland"}
)
"""Reasons that waiting does not cure: only an operator, or a change of hardware, does."""

_WORDS: Final[dict[ReasonCode, str]] = {
    "unreachable": "silent",
    "cordoned": "cordoned",
    "draining": "draining",
    "leased": "leased as whole machines",
    "excluded": "that refused or failed just now",
    "selectorMismatch": "outside the node selector",
    "labelMissing": "without the label",
    "tooFewDevices": "without enough such devices",
    "noSuchIsland": "without an NVLink island or NUMA node that large",
    "held": "with devices on hold",
    "maintenance": "in maintenance",
    "booked": "booked",
    "islandBooked": "with no free NVLink island or NUMA node that large",
    "tooFewPeers": "free, but with too few others of the same value",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one node does not take part, whatever the window."""

    code: ReasonCode


@dataclass(frozen=True, slots=True)
class Blocker:
    """How many nodes one reason keeps away, and when the first of them is expected back."""

    code: ReasonCode
    nodes: int
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """No gang fits: `size_max` is the most nodes that fit together now, `size_ever` if all were sound and free."""

    size: int
    keys: tuple[str, ...]  # on which its nodes had to agree: the least that would have done
    size_max: int
    blockers: tuple[Blocker, ...]
    size_ever: int
    segment_key: str | None = None
    segment_size: int = 0

    @property
    def never(self) -> bool:
        """Can no wait help?"""
        return self.size_ever < self.size

    @property
    def code(self) -> str:
        """The reason in the condition: `neverFits` apart from `doesNotFit`."""
        return "neverFits" if self.never else "doesNotFit"

    @property
    def sentence(self) -> str:
        """The one sentence that API, command line, page and log all show."""
        if self.size == 1 and not self.keys:
            head = "no node fits"
        else:
            where = "".join(f" {'and' if at else 'in'} one {key}" for at, key in enumerate(self.keys))
            if self.segment_key is not None:
                where += f", {self.segment_size} by {self.segment_size} in one {self.segment_key}"
            most = f"at most {_nodes(self.size_max)} {'fits' if self.size_max == 1 else 'fit'} together"
            head = f"no gang of {_nodes(self.size)} fits{where} ({most})"
        grouped = bool(self.keys) or self.segment_key is not None
        why = "; ".join(_phrase(blocker, grouped=grouped) for blocker in self.blockers)
        if self.never and why:
            why += f"; waiting does not help, since at most {_nodes(self.size_ever)} could ever fit together"
        return f"{head}: {why}" if why else f"{head}: the pool has no nodes"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _phrase(blocker: Blocker, *, grouped: bool) -> str:
    until = f" until {format_instant(blocker.until_ms)}" if blocker.until_ms is not None else ""
    words = "free, but too few" if blocker.code == "tooFewPeers" and not grouped else _WORDS[blocker.code]
    return f"{_nodes(blocker.nodes)} {words}{until}"


def blockers(counts: Mapping[ReasonCode, int], untils: Mapping[ReasonCode, int]) -> tuple[Blocker, ...]:
    """Return what stands in the way, most nodes first.

    Args:
        counts: Nodes by reason.
        untils: Of some reasons, the earliest instant at which one of its nodes is expected back.
    """
    named = [Blocker(code, nodes, untils.get(code)) for code, nodes in counts.items() if nodes]
    return tuple(sorted(named, key=lambda blocker: (-blocker.nodes, blocker.code)))
