"""Refusals as values, and the one place that words them."""

from collections.abc import Iterable
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
    "noSuchIsland": "without an NVLink island that large",
    "held": "with devices on hold",
    "booked": "booked",
    "islandBooked": "with no free NVLink island that large",
    "tooFewPeers": "free, but with too few others of the same value",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one node does not take part, and until when that is known to last (ms UTC, None: nobody knows)."""

    code: ReasonCode
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Blocker:
    """How many nodes one reason keeps away, and when the first of them is expected back."""

    code: ReasonCode
    nodes: int
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """No gang fits. `size_max` is the most nodes that fit together, `never` that no wait can help."""

    size: int
    topology_key: str | None
    size_max: int
    blockers: tuple[Blocker, ...]
    never: bool

    @property
    def code(self) -> str:
        """The reason in the condition: `neverFits` apart from `doesNotFit`."""
        return "neverFits" if self.never else "doesNotFit"

    @property
    def sentence(self) -> str:
        """The one sentence that API, command line, page and log all show."""
        if self.size == 1 and self.topology_key is None:
            head = "no node fits"
        else:
            nodes = f"{self.size} node" + ("s" if self.size > 1 else "")
            where = f" in one {self.topology_key}" if self.topology_key else ""
            most = f"at most {self.size_max} node{'' if self.size_max == 1 else 's'}"
            head = f"no gang of {nodes} fits{where} ({most} {'fits' if self.size_max == 1 else 'fit'} together)"
        why = "; ".join(_phrase(blocker, self.topology_key) for blocker in self.blockers)
        return f"{head}: {why}" if why else f"{head}: the pool has no nodes"


def _phrase(blocker: Blocker, topology_key: str | None) -> str:
    nodes = f"{blocker.nodes} node{'' if blocker.nodes == 1 else 's'}"
    until = f" until {format_instant(blocker.until_ms)}" if blocker.until_ms is not None else ""
    words = "free, but too few" if blocker.code == "tooFewPeers" and topology_key is None else _WORDS[blocker.code]
    return f"{nodes} {words}{until}"


def gathered(reasons: Iterable[Reason]) -> tuple[Blocker, ...]:
    """Count equal reasons, most nodes first; `until_ms` is the earliest that any of them names."""
    counts: dict[ReasonCode, int] = {}
    untils: dict[ReasonCode, int] = {}
    for reason in reasons:
        counts[reason.code] = counts.get(reason.code, 0) + 1
        if reason.until_ms is not None:
            untils[reason.code] = min(untils.get(reason.code, reason.until_ms), reason.until_ms)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Blocker(code, nodes, untils.get(code)) for code, nodes in ordered)
