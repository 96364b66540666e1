"""Which atoms of one node: the same ones for the whole window, from the smallest island that fits."""

from muster_coordinator.core.model import Request
from muster_coordinator.core.placement.reasons import Reason
from muster_coordinator.core.snapshot import NodeView


def pick_atoms(view: NodeView, request: Request) -> int | Reason:
    """Pick the atoms of one node as a mask, or say why it has none.

    `nvlink-all` takes them from one island, the smallest with enough free atoms; `any` fills the most broken
    islands first, so that whole islands stay whole. Lowest numbers first: equal input, equal answer.

    Source: design, section 4, step 1.
    """
    shape = request.shape
    suitable = view.suitable(shape)
    free = view.free(request.window) & suitable
    bookable = free & ~view.held_mask
    if bookable.bit_count() < shape.count:
        if free.bit_count() >= shape.count:
            return Reason("held")
        healthy = suitable & ~view.held_mask
        if healthy.bit_count() < shape.count:
            return Reason("held")
        return Reason("booked", view.free_again_ms(healthy, shape.count, request.window))
    left_in_island = sorted((island & bookable for island in view.islands), key=_fewest_first)
    if shape.topology == "nvlink-all":
        for island in left_in_island:
            if island.bit_count() >= shape.count:
                return _lowest(island, shape.count)
        return Reason("islandBooked")
    picked = 0
    for island in left_in_island:
        picked |= _lowest(island, min(island.bit_count(), shape.count - picked.bit_count()))
    return picked


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
