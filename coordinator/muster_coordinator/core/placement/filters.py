"""One function for each question a node must pass, whatever the window; each answers None or a Reason."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from muster_coordinator.core.model import Shape
from muster_coordinator.core.placement.atoms import pick_atoms
from muster_coordinator.core.placement.reasons import Reason
from muster_coordinator.core.snapshot import NodeView

Keys = tuple[str, ...]
"""The topology keys on which the nodes of a group agree; empty for a gang that needs no group."""

Filter = Callable[[NodeView, Shape, Keys], Reason | None]


def is_selected(view: NodeView, shape: Shape, _keys: Keys) -> Reason | None:
    """Does the node carry every label of the selector?"""
    labels = view.node.labels
    for key, value in shape.selector:
        if labels.get(key) != value:
            return Reason("selectorMismatch")
    return None


def has_topology_values(view: NodeView, _shape: Shape, keys: Keys) -> Reason | None:
    """Does the node have a value of each topology key that can form a group?"""
    return Reason("labelMissing") if keys and group_of(view, keys) is None else None


def has_devices(view: NodeView, shape: Shape, _keys: Keys) -> Reason | None:
    """Would the empty, healthy node fit the request at all?"""
    if pick_atoms(view.atoms_mask, view.layout, shape.entries):
        return None
    anywhere = tuple(replace(entry, topology="any") for entry in shape.entries)
    enough = pick_atoms(view.atoms_mask, view.layout, anywhere)
    return Reason("noSuchIsland" if enough else "tooFewDevices")


def is_not_leased(view: NodeView, _shape: Shape, _keys: Keys) -> Reason | None:
    """Does the machine still belong to the pool?"""
    return Reason("leased") if view.node.leased else None


def is_open(view: NodeView, _shape: Shape, _keys: Keys) -> Reason | None:
    """Does the operator let new work in?"""
    return None if view.node.intent == "schedulable" else Reason(view.node.intent)


def is_heard_from(view: NodeView, _shape: Shape, _keys: Keys) -> Reason | None:
    """Is the agent reporting? Unknown is not bad, but it gets no new work."""
    return None if view.node.reachable else Reason("unreachable")


FILTERS: Final[tuple[Filter, ...]] = (
    # Permanent reasons first: a node that can never take part is not said to be merely silent.
    is_selected,
    has_topology_values,
    has_devices,
    is_not_leased,
    is_open,
    is_heard_from,
)


def first_reason(view: NodeView, shape: Shape, keys: Keys) -> Reason | None:
    """Return why a node takes no part whatever is booked on it; None where only bookings may stand in the way."""
    for question in FILTERS:
        if (reason := question(view, shape, keys)) is not None:
            return reason
    return None


def group_value(view: NodeView, topology_key: str) -> str | None:
    """Return the node's value of a topology key; a blank, all-zero or absent one forms no group.

    Source: design, section 4, step 2; hosts with a zero cluster UUID are strangers to each other, whatever clique
    number they report beside it.
    """
    value = view.node.labels.get(topology_key, "").strip()
    cluster = value.partition(".")[0]
    is_zero_uuid = "-" in cluster and not cluster.strip("0-")
    return value if value.strip("0-.") and not is_zero_uuid else None


def group_of(view: NodeView, keys: Keys) -> tuple[str, ...] | None:
    """Return the values by which a node finds its group; None where one of them forms no group."""
    values: list[str] = []
    for key in keys:
        value = group_value(view, key)
        if value is None:
            return None
        values.append(value)
    return tuple(values)
