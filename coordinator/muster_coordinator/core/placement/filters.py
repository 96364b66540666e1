"""One function for each question a node must pass, whatever the window; each answers None or a Reason."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from muster_coordinator.core.model import Shape
from muster_coordinator.core.placement.reasons import PERMANENT, Reason
from muster_coordinator.core.snapshot import NodeView, Snapshot

T = TypeVar("T")

Filter = Callable[[NodeView, Shape, str | None], Reason | None]


def is_selected(view: NodeView, shape: Shape, _topology_key: str | None) -> Reason | None:
    """Does the node carry every label of the selector?"""
    labels = view.node.labels
    for key, value in shape.selector:
        if labels.get(key) != value:
            return Reason("selectorMismatch")
    return None


def has_topology_value(view: NodeView, _shape: Shape, topology_key: str | None) -> Reason | None:
    """Does the node have a value of the topology key that can form a group?"""
    if topology_key is None or group_value(view, topology_key) is not None:
        return None
    return Reason("labelMissing")


def has_devices(view: NodeView, shape: Shape, _topology_key: str | None) -> Reason | None:
    """Would the empty, healthy node fit the request at all?"""
    suitable = view.suitable(shape)
    if suitable.bit_count() < shape.count:
        return Reason("tooFewDevices")
    if shape.topology == "nvlink-all" and not any(
        (island & suitable).bit_count() >= shape.count for island in view.islands
    ):
        return Reason("noSuchIsland")
    return None


def is_not_leased(view: NodeView, _shape: Shape, _topology_key: str | None) -> Reason | None:
    """Does the machine still belong to the pool?"""
    return Reason("leased") if view.node.leased else None


def is_open(view: NodeView, _shape: Shape, _topology_key: str | None) -> Reason | None:
    """Does the operator let new work in?"""
    return None if view.node.intent == "schedulable" else Reason(view.node.intent)


def is_heard_from(view: NodeView, _shape: Shape, _topology_key: str | None) -> Reason | None:
    """Is the agent reporting? Unknown is not bad, but it gets no new work."""
    return None if view.node.reachable else Reason("unreachable")


FILTERS: Final[tuple[Filter, ...]] = (
    # Permanent reasons first: a node that can never take part is not said to be merely silent.
    is_selected,
    has_topology_value,
    has_devices,
    is_not_leased,
    is_open,
    is_heard_from,
)


@dataclass(frozen=True, slots=True)
class Open:
    """A node that passes every filter: only bookings may still stand in the way."""

    node_id: str
    usable: int  # suitable atoms without a hold
    islands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """A pool as one shape sees it, whatever the window. Groups are keyed by topology value, "" without a key."""

    open: Mapping[str, tuple[Open, ...]]  # groups that have such nodes
    nodes: Mapping[str, tuple[str, ...]]  # every node of a group, open or not
    reasons: Mapping[str, Reason]  # of the nodes that do not pass
    size_ever: int  # the most nodes of one group that would pass if all were healthy, open and heard from


def standing(snapshot: Snapshot, shape: Shape, topology_key: str | None) -> Standing:
    """Ask every node every question. No answer depends on bookings, so a snapshot keeps it."""
    is_open_in: defaultdict[str, list[Open]] = defaultdict(list)
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    reasons: dict[str, Reason] = {}
    sizes_ever: defaultdict[str, int] = defaultdict(int)
    for node_id, view in snapshot.views.items():
        group = group_of(view, topology_key)
        nodes[group].append(node_id)
        reason = _first_reason(view, shape, topology_key)
        if reason is None:
            usable = view.suitable(shape) & ~view.held_mask
            is_open_in[group].append(Open(node_id, usable, view.islands))
        else:
            reasons[node_id] = reason
        sizes_ever[group] += reason is None or reason.code not in PERMANENT
    return Standing(_frozen(is_open_in), _frozen(nodes), reasons, max(sizes_ever.values(), default=0))


def group_value(view: NodeView, topology_key: str) -> str | None:
    """Return the node's value of a topology key; a blank, all-zero or absent one forms no group.

    Source: design, section 4, step 2; hosts with a zero cluster UUID are strangers to each other, whatever clique
    number they report beside it.
    """
    value = view.node.labels.get(topology_key, "").strip()
    cluster = value.partition(".")[0]
    is_zero_uuid = "-" in cluster and not cluster.strip("0-")
    return value if value.strip("0-.") and not is_zero_uuid else None


def group_of(view: NodeView, topology_key: str | None) -> str:
    """Return the group in which a node may be part of a gang; without a key, all nodes are one group."""
    return "" if topology_key is None else group_value(view, topology_key) or ""


def _first_reason(view: NodeView, shape: Shape, topology_key: str | None) -> Reason | None:
    for question in FILTERS:
        if (reason := question(view, shape, topology_key)) is not None:
            return reason
    return None


def _frozen(groups: Mapping[str, list[T]]) -> dict[str, tuple[T, ...]]:
    return {group: tuple(members) for group, members in groups.items()}
