"""Whether an order may be bound now: the questions asked before a tenant gets near a device."""

from collections.abc import Iterator
from dataclasses import dataclass

from muster_agent.core.desired import Order
from muster_agent.core.records import Facts, State
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
    if unseen := sorted(set(order.devices) - facts.devices):
        yield Obstacle(f"deviceMissing: {unseen[0]}", passing=False)
    for hold in facts.holds:
        if hold.device is None or hold.device in order.devices:
            yield Obstacle(f"held: {_named(hold)}", passing=False)
    if order.imex_channel is not None:
        yield Obstacle("imexNotSupported: this agent hands out no IMEX channels", passing=False)
    if order.topology_key == FABRIC_DOMAIN and facts.fabric_domain != order.topology_value:
        if facts.fabric_domain is None:
            yield Obstacle(f"fabricUnknown: waiting for {FABRIC_DOMAIN} {order.topology_value}", passing=True)
        else:
            reason = f"fabricDiffers: {FABRIC_DOMAIN} is {facts.fabric_domain}, not {order.topology_value}"
            yield Obstacle(reason, passing=False)


def _holder(order: Order, state: State) -> str | None:
    for other in sorted(state.records.values(), key=lambda record: record.allocation_id):
        exposed = other.state in {"binding", "bound", "unbinding"}
        if exposed and other.allocation_id != order.allocation_id and set(other.devices) & set(order.devices):
            return other.allocation_id
    return None


def _named(hold: Hold) -> str:
    code = "" if hold.code is None else f" {hold.code}"
    return f"{hold.cause}{code} on {hold.device or 'the node'}"
