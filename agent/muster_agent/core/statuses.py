"""What a report says of assignments: the full set of what is not released, so that absence means released."""

from muster_agent.core.beginning import due
from muster_agent.core.desired import Order
from muster_agent.core.machine import INTERRUPTED
from muster_agent.core.preconditions import obstacle
from muster_agent.core.readings import one_line
from muster_agent.core.records import Facts, Record, State
from muster_shared.wire import AssignmentStatus


def statuses(state: State, facts: Facts | None, boot_ms: int) -> list[AssignmentStatus]:
    """List every record that is not released, then every order that waits, each by allocation id.

    An order that a tombstone keeps out is told as failed, with the tombstone's reason: the coordinator learns that
    this generation is over here and will not come back.

    Source: design, section 6, "acknowledge the revision, not the message".
    """
    of_records = (_of_record(state, record, facts) for _, record in sorted(state.records.items()))
    told = [status for status in of_records if status]
    names = {status.allocation_id for status in told}
    orders = sorted(state.desired.orders.items()) if state.desired else []
    waiting = (_of_order(state, order, facts, boot_ms) for key, order in orders if key not in names)
    return [*told, *(status for status in waiting if status)]


def _of_record(state: State, record: Record, facts: Facts | None) -> AssignmentStatus | None:
    memory = state.memory_of(record.allocation_id)
    told = AssignmentStatus(
        allocation_id=record.allocation_id,
        generation=record.generation,
        state="failed" if record.state == "released" else record.state,
        reason=_line(memory.failure or record.reason or _gone(record, facts)),
        guard_armed=memory.guard_armed,
    )
    if record.state == "released":
        return told if state.wants(record) else None
    if state.lost(record):
        return told.model_copy(update={"state": "lostByReboot", "reason": None})
    if record.state == "failed" and record.reason == INTERRUPTED:
        return told.model_copy(update={"state": "binding"})  # the next act begins it afresh: no news to act upon
    return told


def _of_order(state: State, order: Order, facts: Facts | None, boot_ms: int) -> AssignmentStatus | None:
    old = state.records.get(order.allocation_id)
    superseded = old is not None and old.generation > order.generation
    if not superseded and not due(order, old, boot_ms):
        return None
    hindrance = obstacle(order, state, facts)
    waits_for = hindrance.reason if hindrance and hindrance.passing else state.memory_of(order.allocation_id).failure
    if not superseded and waits_for is None:
        return None  # about to be bound, or to fail, by the machine itself
    return AssignmentStatus(
        allocation_id=order.allocation_id,
        generation=order.generation,
        state="failed" if superseded else "blocked",
        reason="superseded" if superseded else _line(waits_for),
    )


def _gone(record: Record, facts: Facts | None) -> str | None:
    """Name a device that a tenant has lost, such as a MIG instance that somebody destroyed under it.

    Source: agent cases, A54.
    """
    unseen = sorted(set(record.devices) - facts.devices) if facts else []
    return f"deviceMissing: {unseen[0]}" if unseen else None


def _line(reason: str | None) -> str | None:
    return None if reason is None else one_line(reason)
