"""Whether an order may be bound now: the questions asked before a tenant gets near a device."""

from collections.abc import Iterator
from dataclasses import dataclass

from muster_agent.core.desired import Order
from muster_agent.core.records import EXPOSED, Facts, Record, State
from muster_shared.wire import FABRIC_DOMAIN, Hold


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why not. Words for the report: a camelCase code, a colon, the figures."""

    reason: str
    passing: bool  # waits for something that is under way; otherwise the bind has failed


def obstacle(order: Order, state: State, facts: Facts | None) -> Obstacle | None:
    """Answer the first reason against binding, None if there is none.

    An absent fabric label counts as unknown, so the order waits; a different one is a failure, because the gang's
    other members are elsewhere.

    Source: agent facts, section 4.2, steps 2 and 4; design, section 7.
    """
    return next(_obstacles(order, state, facts), None)


def _obstacles(order: Order, state: State, facts: Facts | None) -> Iterator[Obstacle]:
    if facts is None:
        yield Obstacle("noReading: the GPUs have not been read since the agent started", passing=True)
        return
    if not state.complete:
        yield Obstacle("unknownBindings: a record could not be read, see the node's holds", passing=False)
    if holder := _holder(order, state):
        yield Obstacle(f"overlap: a device is still with {holder}", passing=True)
    if layout := _other_layout(order, facts):
        yield Obstacle(f"migLayout: {layout}", passing=False)
    if unseen := sorted(set(order.devices) - facts.devices):
        yield Obstacle(f"deviceMissing: {unseen[0]}", passing=False)
    places = {*order.devices, *(place.gpu for place in facts.instances if place.uuid in order.devices)}
    for hold in facts.holds:
        if hold.device is None or hold.device in places:
            yield Obstacle(f"held: {_named(hold)}", passing=False)
    yield from _imex_obstacles(order, state)
    if order.topology_key == FABRIC_DOMAIN and facts.fabric_domain != order.topology_value:
        if facts.fabric_domain is None:
            yield Obstacle(f"fabricUnknown: waiting for {FABRIC_DOMAIN} {order.topology_value}", passing=True)
        else:
            reason = f"fabricDiffers: {FABRIC_DOMAIN} is {facts.fabric_domain}, not {order.topology_value}"
            yield Obstacle(reason, passing=False)


def _holder(order: Order, state: State) -> str | None:
    """Name the allocation that has one of the devices; two that both have but a share of it do not overlap."""
    for other in _exposed_beside(order, state):
        if (set(other.devices) & set(order.devices)) - (set(other.shared) & set(order.shared)):
            return other.allocation_id
    return None


def _exposed_beside(order: Order, state: State) -> Iterator[Record]:
    for _, other in sorted(state.records.items()):
        if other.state in EXPOSED and other.allocation_id != order.allocation_id:
            yield other


def _other_layout(order: Order, facts: Facts) -> str | None:
    """Tell what of the asked MIG layout is not as the GPUs have it.

    Source: agent cases, A54: an instance's UUID is opaque, so an unknown one can only be one that is gone.
    """
    parents = {place.gpu for place in facts.instances}
    for uuid in order.devices:
        if uuid in parents:
            return f"{uuid} is in MIG mode, and was asked for whole"
        if uuid.startswith("MIG-") and uuid not in facts.devices:
            return f"{uuid} is not there"
    return None


def _imex_obstacles(order: Order, state: State) -> Iterator[Obstacle]:
    """A host runs one IMEX daemon, with one list of nodes: a second gang would be in the first one's domain.

    Source: agent cases, A55.
    """
    if order.imex_channel is None:
        return
    for other in _exposed_beside(order, state):
        if other.imex_channel is not None and other.reservation_id != order.reservation_id:
            reason = f"imexBusy: the host's IMEX daemon serves {other.allocation_id}"
            yield Obstacle(reason, passing=other.state == "unbinding")


def _named(hold: Hold) -> str:
    code = "" if hold.code is None else f" {hold.code}"
    return f"{hold.cause}{code} on {hold.device or 'the node'}"
