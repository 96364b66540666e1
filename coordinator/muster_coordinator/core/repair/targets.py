"""Which nodes a repair does not move anybody to, though they would take new work."""

from muster_coordinator.core.model import Node, Policy
from muster_coordinator.core.repair.brake import Storm
from muster_coordinator.core.snapshot import Snapshot


def untrusted(snapshot: Snapshot, storm: Storm, now_ms: int, policy: Policy) -> frozenset[str]:
    """Return the nodes that have not proven themselves, and those whose neighbours are falling.

    Source: design, section 7, "Hysteresis"; facts on reliability, section 3.2.
    """
    return frozenset(
        node_id
        for node_id, view in snapshot.views.items()
        if not is_steady(view.node, now_ms, policy) or storm.is_in(view.node)
    )


def is_steady(node: Node, now_ms: int, policy: Policy) -> bool:
    """Has nothing happened to the node for `healthyAfter`, and does it not come and go?"""
    quiet_since_ms = max(node.sound_since_ms, node.fault_ms)
    return not node.flapping_until_ms and (not quiet_since_ms or now_ms - quiet_since_ms >= policy.healthy_after_ms)
