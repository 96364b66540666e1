"""Which atoms of one node: the same ones for the whole window, from the smallest island that fits."""

from dataclasses import dataclass
from functools import lru_cache

from muster_coordinator.core.model import Request
from muster_coordinator.core.placement.filters import Open
from muster_coordinator.core.placement.reasons import Reason
from muster_coordinator.core.snapshot import NodeView
from muster_shared.devices import Topology

_REMEMBERED = 1 << 14  # nodes are alike: a pool of thousands shows some hundred different masks


@dataclass(frozen=True, slots=True)
class Picked:
    """A node and the atoms that it would give."""

    node_id: str
    mask: int
    left: int  # suitable atoms that it could still give afterwards


@lru_cache(maxsize=_REMEMBERED)
def pick_atoms(bookable: int, islands: tuple[int, ...], count: int, topology: Topology) -> int:
    """Pick the atoms of one node as a mask; 0 where it has none to give.

    `nvlink-all` takes them from one island, the smallest with enough bookable atoms; `any` fills the most broken
    islands first, so that whole islands stay whole. Lowest numbers first: equal input, equal answer.

    Args:
        bookable: Atoms that are suitable, not on hold, and free for the whole window.
        islands: Of the node, as masks.
        count: How many are asked, at least 1.
        topology: What they must share.

    Source: design, section 4, step 1.
    """
    if bookable.bit_count() < count:
        return 0
    left_in_island = sorted((island & bookable for island in islands), key=_fewest_first)
    if topology == "nvlink-all":
        whole = (_lowest(island, count) for island in left_in_island if island.bit_count() >= count)
        return next(whole, 0)
    picked = 0
    for island in left_in_island:
        picked |= _lowest(island, min(island.bit_count(), count - picked.bit_count()))
    return picked


def why_none(view: NodeView, one: Open, request: Request) -> Reason:
    """Say why a node that passes every filter has no atoms to give in this window."""
    shape = request.shape
    free = view.free(request.window)
    unheld = pick_atoms(free & view.suitable(shape), view.islands, shape.count, shape.topology)
    if unheld or not pick_atoms(one.usable, view.islands, shape.count, shape.topology):
        return Reason("held")
    if (free & one.usable).bit_count() >= shape.count:
        return Reason("islandBooked")
    return Reason("booked", view.free_again_ms(one.usable, shape.count, request.window))


def _fewest_first(mask: int) -> tuple[int, int]:
    return mask.bit_count(), mask


def _lowest(mask: int, count: int) -> int:
    if mask.bit_count() == count:
        return mask
    picked = 0
    for _ in range(count):
        lowest = mask & -mask
        picked |= lowest
        mask ^= lowest
    return picked
