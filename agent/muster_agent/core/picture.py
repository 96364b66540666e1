"""What the agent shows to whoever looks on the host itself: all that it tells the coordinator, and when it ends."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from muster_agent.core.records import State
from muster_shared.codec import Count, Message, Text
from muster_shared.wire import AssignmentStatus, Hold, Inventory

VERSION = 1
"""Of the file that holds a picture. A program that shows it says so where it reads another one."""


class Held(AssignmentStatus):
    """One assignment as it stands on this host."""

    reservation_id: Text | None = None  # None for an order that has no record yet
    tenant_id: Text | None = None
    devices: tuple[str, ...] = ()
    ends_in_ms: int | None = None  # the grant; negative once it is over


class Picture(Message):
    """The agent at one moment."""

    version: int = VERSION
    agent_version: Text
    boot_id: Text
    written_ms: Count  # wall clock, for people
    written_boot_ms: Count
    sentence: str
    heard: bool  # the coordinator answered lately
    cluster_id: str  # empty until the node has joined
    node_id: str
    epoch: Count
    desired_rev: Count | None = None  # None before the first desired state of this process
    applied_rev: Count
    inventory: Inventory | None = None  # None before the first reading
    holds: Annotated[list[Hold], Field(max_length=256)]
    assignments: list[Held]


def held(state: State, told: Sequence[AssignmentStatus], boot_ms: int) -> list[Held]:
    """Add to what is told of the assignments whose they are and when they end."""
    return [_held(state, status, boot_ms) for status in told]


def _held(state: State, status: AssignmentStatus, boot_ms: int) -> Held:
    told = status.model_dump()
    order = state.desired.orders.get(status.allocation_id) if state.desired else None
    thing = state.records.get(status.allocation_id) or order
    if thing is None:
        return Held(**told)
    # Once it is known, the order has the newer end: a record is written when the end has moved by more than a jitter.
    end_boot_ms = order.end_boot_ms if order and order.generation == status.generation else thing.end_boot_ms
    return Held(
        **told,
        reservation_id=thing.reservation_id,
        tenant_id=thing.tenant_id,
        devices=thing.devices,
        ends_in_ms=end_boot_ms - boot_ms,
    )
