"""The baseline of a plan: a full sweep that a first version would make, GPU by GPU and booking by booking."""

from collections import defaultdict

from muster_coordinator.core.model import Node, Request


def naive_gang(pool: list[Node], request: Request) -> list[str] | None:
    """Return the ids of some gang in the tightest group that holds one, or None.

    It knows neither holds nor islands, which the measured pools do not have, and tells no reason.
    """
    (topology_key,) = request.grouping.required
    (entry,) = request.shape.entries
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for node in pool:
        free = [atom for atom in node.atoms if not _is_booked(node, atom.number, request)]
        if len(free) >= entry.count and topology_key in node.labels:
            groups[node.labels[topology_key]].append(node.id)
    able = [sorted(group) for group in groups.values() if len(group) >= request.size]
    return min(able, key=len)[: request.size] if able else None


def _is_booked(node: Node, atom: int, request: Request) -> bool:
    return any(
        one.mask >> atom & 1 and one.start_ms < request.window.end_ms and one.end_ms > request.window.start_ms
        for one in node.booked
    )
