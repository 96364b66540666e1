"""How a bind begins: an order that is due, nothing against it, nobody on its devices, then the intent on disk."""

from dataclasses import replace
from typing import Final

from muster_agent.core.desired import Order
from muster_agent.core.outcomes import backoff_ms
from muster_agent.core.preconditions import obstacle
from muster_agent.core.records import Act, Facts, Look, Record, Save, State

LOOK_MS_MAX: Final = 2_000
"""How old a look at the devices may be. An agent that dawdled longer between look and grant looks again."""


def begin(state: State, facts: Facts | None, boot_ms: int) -> Act | None:
    """Name the act that begins the next bind, None when none is due or all that are due wait for something."""
    if state.desired is None or state.desired.fence != state.fence:
        return None
    for _, order in sorted(state.desired.orders.items()):
        old = state.records.get(order.allocation_id)
        if not due(order, old, boot_ms) or _waits(state, order.allocation_id, boot_ms):
            continue
        record = _intended(state, order, old, facts, boot_ms)
        hindrance = obstacle(order, state, facts)
        if hindrance is None:
            return _look_or_save(state, record, facts, boot_ms)
        if not hindrance.passing:
            return Save(failed(record, hindrance.reason, boot_ms))
    return None


def due(order: Order, old: Record | None, boot_ms: int) -> bool:
    """Tell whether an order asks for a bind now that no record forbids: neither a live one nor a tombstone."""
    if not order.start_boot_ms <= boot_ms < order.end_boot_ms:
        return False
    if old is None or (old.state == "failed" and old.generation <= order.generation):
        return True
    return old.state == "released" and old.generation < order.generation


def failed(record: Record, reason: str | None, boot_ms: int) -> Record:
    """Return a record of a bind that did not work and is tried again after a while."""
    return replace(
        record,
        state="failed",
        since_boot_ms=boot_ms,
        reason=reason,
        attempts=record.attempts + 1,
        retry_boot_ms=boot_ms + backoff_ms(record.attempts),
    )


def _look_or_save(state: State, record: Record, facts: Facts | None, boot_ms: int) -> Act:
    memory = state.memory_of(record.allocation_id)
    if memory.looked_boot_ms is None or boot_ms - memory.looked_boot_ms > LOOK_MS_MAX:
        alone = state.alone_on(record)
        assert facts is not None  # an order without facts has an obstacle
        return Look(record, alone, facts.computing(alone), facts.read_boot_ms)
    return Save(record) if memory.foreign is None else Save(failed(record, memory.foreign, boot_ms))


def _waits(state: State, allocation_id: str, boot_ms: int) -> bool:
    old = state.records.get(allocation_id)
    backs_off = old is not None and old.boot_id == state.boot_id and boot_ms < old.retry_boot_ms
    return backs_off or boot_ms < state.memory_of(allocation_id).retry_boot_ms


def _intended(state: State, order: Order, old: Record | None, facts: Facts | None, boot_ms: int) -> Record:
    return Record(
        allocation_id=order.allocation_id,
        reservation_id=order.reservation_id,
        generation=order.generation,
        tenant_id=order.tenant_id,
        devices=order.devices,
        state="binding",
        boot_id=state.boot_id,
        since_boot_ms=boot_ms,
        end_boot_ms=order.end_boot_ms,
        end_unix_ms=order.end_unix_ms,
        topology_key=order.topology_key,
        topology_value=order.topology_value,
        attempts=old.attempts if old and old.state == "failed" else 0,
        shared=order.shared,
        instances=tuple(place for place in facts.instances if place.uuid in order.devices) if facts else (),
        imex_channel=order.imex_channel,
        imex_peers=order.imex_peers,
        kill_grace_ms=order.kill_grace_ms,
    )
