"""What follows from an act that has ended: the next state, and how far the desired state has been taken over."""

from dataclasses import replace
from typing import Final

from muster_agent.core.records import (
    Act,
    Evict,
    Forget,
    Grant,
    Look,
    Memory,
    Outcome,
    Progress,
    Record,
    Reset,
    Revoke,
    Save,
    SaveFence,
    State,
    Touch,
    Verify,
    Warn,
)

BACKOFF_MS: Final = (1_000, 2_000, 5_000, 10_000, 30_000)  # agent facts, 4.2
EVICT_EVERY_MS: Final = 1_000  # within the grace: a tenant that leaves in good order is gone in a second or two


def after(state: State, act: Act, outcome: Outcome) -> State:
    """Return the state once an act has ended, well or not. A failed act is tried again with back-off."""
    match act:
        case SaveFence(fence):
            if outcome.trouble:
                return replace(state, fence_retry_boot_ms=outcome.boot_ms + BACKOFF_MS[0])
            following = replace(state, fence=fence)
        case Save(record):
            following = _after_save(state, record, outcome)
        case Forget(allocation_id):
            following = _after_forget(state, allocation_id, outcome)
        case Look(record):
            memory = _after_look(state.memory_of(record.allocation_id), outcome)
            following = _with_memory(state, record.allocation_id, memory)
        case Grant(record) | Verify(record) | Revoke(record) | Evict(record) | Reset(record) | Warn(record):
            memory = _after_touch(state.memory_of(record.allocation_id), act, outcome)
            following = _with_memory(state, record.allocation_id, memory)
    return with_applied_rev(following)


def _after_save(state: State, record: Record, outcome: Outcome) -> State:
    if outcome.trouble and record.state != "unbinding":
        failing = _failing(state.memory_of(record.allocation_id), outcome)
        return _with_memory(state, record.allocation_id, failing)
    # `unbinding` is obeyed even where it could not be written: a full disk must not keep a device exposed.
    records = {**state.records, record.allocation_id: record}
    before = state.memory_of(record.allocation_id)
    match record.state:
        case "bound" if before.progress is Progress.GRANTED:
            memory = Memory(Progress.SOUND, at_boot_ms=outcome.boot_ms, guard_armed=before.guard_armed)
        case "binding" | "bound":
            memory = Memory(Progress.BEGUN, guard_armed=before.guard_armed)
        case "unbinding":
            memory = Memory(guard_armed=before.guard_armed)
        case _:
            memory = Memory()
    return _with_memory(replace(state, records=records), record.allocation_id, memory)


def _after_forget(state: State, allocation_id: str, outcome: Outcome) -> State:
    if outcome.trouble:
        return _with_memory(state, allocation_id, _failing(state.memory_of(allocation_id), outcome))
    return replace(
        state,
        records={key: record for key, record in state.records.items() if key != allocation_id},
        memory={key: memory for key, memory in state.memory.items() if key != allocation_id},
    )


def _after_look(memory: Memory, outcome: Outcome) -> Memory:
    return replace(memory, looked_boot_ms=outcome.boot_ms, foreign=outcome.trouble)


def _after_touch(memory: Memory, act: Touch, outcome: Outcome) -> Memory:
    match act:
        case Revoke() if outcome.trouble:
            return _failing(memory, outcome)
        case Revoke():
            return Memory(Progress.REVOKED, trouble=memory.trouble, guard_armed=memory.guard_armed)
        case Evict():
            return _after_evict(memory, act, outcome)
        case Reset():
            # Once is enough: where it did not help, the hold stays, and with it the device.
            return replace(memory, reset=True)
        case Warn():
            # A hook that fails has had its say; the deadline does not wait for it.
            return replace(memory, warned=True)
        case _:
            return replace(_after_grant(memory, act, outcome), guard_armed=outcome.guard_armed)


def _after_evict(memory: Memory, act: Evict, outcome: Outcome) -> Memory:
    if outcome.trouble is None:
        return replace(Memory(Progress.EMPTIED), trouble=memory.trouble, guard_armed=memory.guard_armed)
    begun_ms = memory.evicting_boot_ms
    failing = replace(_failing(memory, outcome), evicting_boot_ms=outcome.boot_ms if begun_ms is None else begun_ms)
    if act.force:
        return failing
    # Within the grace it is only waited for: no failure yet, and no growing pause.
    return replace(failing, failures=0, retry_boot_ms=outcome.boot_ms + EVICT_EVERY_MS)


def _after_grant(memory: Memory, act: Grant | Verify, outcome: Outcome) -> Memory:
    match act:
        case Verify() if outcome.trouble:
            return replace(memory, progress=Progress.TROUBLED)
        case Grant() if outcome.trouble:
            # A bind that failed is undone at once; a grant that could not be mended waits its turn.
            undo = act.record.state == "binding"
            troubled = replace(memory, progress=Progress.TROUBLED, trouble=outcome.trouble)
            return troubled if undo else _failing(troubled, outcome)
        case Grant() if act.record.state == "binding":
            return Memory(Progress.GRANTED)
        case _:
            return Memory(Progress.SOUND, at_boot_ms=outcome.boot_ms)


def _failing(memory: Memory, outcome: Outcome) -> Memory:
    return replace(
        memory,
        failures=memory.failures + 1,
        failure=outcome.trouble,
        retry_boot_ms=outcome.boot_ms + backoff_ms(memory.failures),
    )


def backoff_ms(failures: int) -> int:
    """Return the pause after so many failures in a row, in milliseconds."""
    return BACKOFF_MS[min(failures, len(BACKOFF_MS) - 1)]


def with_applied_rev(state: State) -> State:
    """Note the desired revision once every record that it does not name is at least being unbound.

    From then on an allocation that is absent from the report has been released. A node that lost a record cannot
    promise that, and promises nothing.
    """
    if state.desired is None or not state.complete or state.desired.fence != state.fence:
        return state
    kept = (record for record in state.records.values() if record.state in {"binding", "bound"})
    if any(not state.wants(record) for record in kept):
        return state
    return replace(state, applied_rev=state.desired.fence.rev)


def _with_memory(state: State, allocation_id: str, memory: Memory) -> State:
    return replace(state, memory={**state.memory, allocation_id: memory})
