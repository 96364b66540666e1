"""What a pool offers at all, in whole GPUs: the one count that the rollup, the timeline and the outlook show."""

from typing import Final

from muster_coordinator.core.model import Entry
from muster_coordinator.core.snapshot import NodeView, Snapshot

_WHOLE: Final = Entry("gpu", 1)


def whole_gpus(view: NodeView) -> int:
    """Return the atoms of a node that are whole GPUs. MIG instances and slots are not counted anywhere."""
    return view.layout.suitable(_WHOLE)


def takes_work(view: NodeView) -> bool:
    """Tell whether new work may be given to a node, whatever is booked or held on it."""
    return view.node.intent == "schedulable" and view.node.reachable and not view.node.leased


def allocatable(snapshot: Snapshot) -> int:
    """Return the whole GPUs that could be booked if nothing was: open nodes, heard from, and without a hold."""
    return sum((whole_gpus(view) & ~view.held_mask).bit_count() for view in snapshot.views.values() if takes_work(view))
