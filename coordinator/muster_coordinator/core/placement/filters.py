"""One function for each question a node must pass; each answers None or a Reason."""

from collections.abc import Callable
from typing import Final

from muster_coordinator.core.model import Request
from muster_coordinator.core.placement.reasons import Reason
from muster_coordinator.core.snapshot import NodeView

Filter = Callable[[NodeView, Request], Reason | None]


def is_open(view: NodeView, _request: Request) -> Reason | None:
    """Does the operator let new work in?"""
    return None if view.node.intent == "schedulable" else Reason(view.node.intent)


def is_heard_from(view: NodeView, _request: Request) -> Reason | None:
    """Is the agent reporting? Unknown is not bad, but it gets no new work."""
    return None if view.node.reachable else Reason("unreachable")


def is_not_leased(view: NodeView, _request: Request) -> Reason | None:
    """Does the machine still belong to the pool?"""
    return Reason("leased") if view.node.leased else None


def is_selected(view: NodeView, request: Request) -> Reason | None:
    """Does the node carry every label of the selector?"""
    labels = view.node.labels
    for key, value in request.shape.selector:
        if labels.get(key) != value:
            return Reason("selectorMismatch")
    return None


def has_topology_value(view: NodeView, request: Request) -> Reason | None:
    """Does the node have a value of the topology key that can form a group?"""
    if request.topology_key is None or group_value(view, request.topology_key) is not None:
        return None
    return Reason("labelMissing")


def has_devices(view: NodeView, request: Request) -> Reason | None:
    """Would the empty, healthy node fit the request at all?"""
    suitable = view.suitable(request.shape)
    if suitable.bit_count() < request.shape.count:
        return Reason("tooFewDevices")
    if request.shape.topology == "nvlink-all" and not any(
        (island & suitable).bit_count() >= request.shape.count for island in view.islands
    ):
        return Reason("noSuchIsland")
    return None


def group_value(view: NodeView, topology_key: str) -> str | None:
    """Return the node's value of a topology key; a blank, all-zero or absent one forms no group.

    Source: design, section 4, step 2; hosts with a zero cluster UUID are strangers to each other.
    """
    value = view.node.labels.get(topology_key, "").strip()
    return value if value.strip("0-.") else None


FILTERS: Final[tuple[Filter, ...]] = (
    # Permanent reasons first: a node that can never take part is not said to be merely silent.
    is_selected,
    has_topology_value,
    has_devices,
    is_not_leased,
    is_open,
    is_heard_from,
)
