"""The binding machine: which act comes next, and what the state is after it.

Level-triggered: `next_act` looks at records, desired state, facts and the boot clock, and names one act, the safest
first. The shell performs it and tells the outcome to `outcomes.after`. A process may die before, in or after any
act: the records on disk are enough to go on from.

    (none) --Look, Save--> binding --Grant, Save--> bound --Save--> unbinding --Revoke, Evict, Save--> released
                            ^   |  trouble: Revoke, Evict, Save      ^                                  ^    |
                     back-off   +--> failed                          +-- also from binding  also from failed |
                            +---------+                                                    (none) <--24 h----+

Source: design, section 6; agent facts, sections 4.2 to 4.4. Checked by: tests/agent/test_machine.py, at every cut.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from muster_agent.core.beginning import begin, failed
from muster_agent.core.desired import Desired, Fence, refusal
from muster_agent.core.outcomes import with_applied_rev
from muster_agent.core.preconditions import obstacle
from muster_agent.core.records import (
    EXPOSED,
    Act,
    Evict,
    Facts,
    Forget,
    Grant,
    Progress,
    Record,
    Reset,
    Revoke,
    Save,
    SaveFence,
    State,
    Verify,
    Warn,
)

TOMBSTONE_MS: Final = 24 * 3_600_000  # agent facts, 4.2: longer than any order can be under way
VERIFY_EVERY_MS: Final = 60_000  # reliability cases, L33: a grant that vanished is found within a minute
GRANT_MOVED_MS: Final = 1_000  # smaller moves of a deadline are the jitter of round trips, not worth a write
INTERRUPTED: Final = "interrupted"
"""Why a bind stands as failed that will be begun again at once."""


def awake(boot_id: str, records: Mapping[str, Record], fence: Fence, *, complete: bool = True) -> State:
    """Return the state of a process that has just read its disk.

    Args:
        boot_id: Of the running kernel; records of another boot are void.
        records: As read, by allocation id.
        fence: As read.
        complete: False where a record could not be read: then nothing may be taken as released.
    """
    return State(boot_id=boot_id, records=dict(records), fence=fence, complete=complete)


def joined(state: State, cluster_id: str, node_id: str) -> State | str:
    """Take over the identity that the coordinator gave.

    A new node id in the same cluster starts with revision 0 and keeps the epoch.

    Returns:
        The next state, or a sentence why another cluster is refused. Nothing has changed then.

    Source: reliability facts, F35 and I34; agent cases, A22.
    """
    if state.fence.cluster_id not in {"", cluster_id}:
        return f"this node belongs to cluster {state.fence.cluster_id}, and {cluster_id} answered"
    if state.fence.node_id == node_id:
        return state
    return replace(state, fence=Fence(cluster_id, node_id, state.fence.epoch, 0), desired=None, applied_rev=0)


def take(state: State, desired: Desired) -> State | str:
    """Take over a desired state, or say in a sentence why it is refused. A refused one changes nothing."""
    if why := refusal(state.fence, state.desired, desired):
        return why
    known = {*state.records, *desired.orders}
    memory = {key: memory for key, memory in state.memory.items() if key in known}
    return with_applied_rev(replace(state, desired=desired, memory=memory))


def next_act(state: State, facts: Facts | None, boot_ms: int) -> Act | None:
    """Name the next act, the safest first: fence, unbinds, roll-backs, binds under way, care, new binds.

    Args:
        state: After the outcome of the last act was told.
        facts: None until the GPUs have been read fully once: until then nothing new is bound.
        boot_ms: Now.

    Returns:
        None when nothing is due now; time, facts or a desired state can change that.
    """
    if state.desired and state.desired.fence != state.fence and state.fence_retry_boot_ms <= boot_ms:
        return SaveFence(state.desired.fence)
    records = [record for _, record in sorted(state.records.items())]
    # No back-off stands in the way of an end.
    for record in records:
        if act := _end(state, record, boot_ms):
            return act
    ripe = [record for record in records if state.memory_of(record.allocation_id).retry_boot_ms <= boot_ms]
    for rule in (_let_go, _roll_back, _go_on, _care, _bury):
        for record in ripe:
            if act := rule(state, record, facts, boot_ms):
                return act
    return begin(state, facts, boot_ms)


def _end(state: State, record: Record, boot_ms: int) -> Act | None:
    if record.state not in {"binding", "bound"} or not (reason := _why_over(state, record, boot_ms)):
        return None
    return Save(replace(record, state="unbinding", since_boot_ms=boot_ms, reason=reason))


def _why_over(state: State, record: Record, boot_ms: int) -> str | None:
    if state.desired and not state.wants(record):
        return "dropped"
    # The clock of another boot says nothing about this deadline; a lost bind exposes nothing anyway.
    if not state.lost(record) and _end_boot_ms(state, record) <= boot_ms:
        return "grantEnded"
    return None


def _end_boot_ms(state: State, record: Record) -> int:
    order = state.order_for(record)
    return order.end_boot_ms if order else record.end_boot_ms


def _let_go(state: State, record: Record, facts: Facts | None, boot_ms: int) -> Act | None:
    if record.state != "unbinding":
        return None
    memory = state.memory_of(record.allocation_id)
    match memory.progress:
        case Progress.REVOKED if record.boot_id == state.boot_id:
            return _evict(state, record, facts, boot_ms)
        case Progress.EMPTIED if not memory.reset and (gpus := _to_reset(state, record, facts)):
            return Reset(record, gpus)
        case Progress.REVOKED | Progress.EMPTIED:
            # No process of an earlier boot is left, and one of this boot on its devices is somebody else's.
            return Save(_released(state, record, boot_ms))
        case _:
            return Revoke(record)


def _evict(state: State, record: Record, facts: Facts | None, boot_ms: int) -> Act:
    begun_ms = state.memory_of(record.allocation_id).evicting_boot_ms
    alone = state.alone_on(record)
    return Evict(
        record,
        devices=alone,
        pids=facts.computing(alone) if facts else (),
        pids_boot_ms=facts.read_boot_ms if facts else 0,
        force=begun_ms is not None and boot_ms - begun_ms >= record.kill_grace_ms,
    )


def _to_reset(state: State, record: Record, facts: Facts | None) -> tuple[str, ...]:
    """Name the GPUs of a record that a hold wants reset, without those that somebody else is on.

    Source: design, section 6, "resets only where a hold asks for it"; agent facts, section 7, 5.
    """
    asked = {hold.device for hold in facts.holds if hold.clears_by == "gpuResetVerified"} if facts else set[str]()
    others = {
        gpu
        for other in state.records.values()
        if other.allocation_id != record.allocation_id and other.state in EXPOSED
        for gpu in other.gpus
    }
    return tuple(gpu for gpu in record.gpus if gpu in asked and gpu not in others)


def _roll_back(state: State, record: Record, facts: Facts | None, boot_ms: int) -> Act | None:
    memory = state.memory_of(record.allocation_id)
    if state.lost(record):
        return Revoke(record) if memory.progress is Progress.UNTOUCHED else None
    if record.state != "binding":
        return None
    if memory.progress is Progress.REVOKED:
        # Whoever is on the devices came after the look that went before the intent.
        return _evict(state, record, facts, boot_ms)
    if memory.progress is Progress.EMPTIED:
        # A bind that a crash or a new hold cut short did not fail by itself: it is begun afresh without back-off.
        again = replace(record, state="failed", since_boot_ms=boot_ms, reason=INTERRUPTED, retry_boot_ms=boot_ms)
        return Save(failed(record, memory.trouble, boot_ms) if memory.trouble else again)
    order = state.order_for(record)
    hindered = memory.progress is Progress.BEGUN and (order is None or obstacle(order, state, facts) is not None)
    return Revoke(record) if hindered or memory.progress in {Progress.UNTOUCHED, Progress.TROUBLED} else None


def _go_on(state: State, record: Record, _facts: Facts | None, boot_ms: int) -> Act | None:
    if record.state != "binding":
        return None
    match state.memory_of(record.allocation_id).progress:
        case Progress.BEGUN:
            return Grant(record)
        case Progress.GRANTED:
            return Save(replace(record, state="bound", since_boot_ms=boot_ms, reason=None, attempts=0))
        case _:
            return None


def _care(state: State, record: Record, _facts: Facts | None, boot_ms: int) -> Act | None:
    if record.state != "bound" or state.lost(record):
        return None
    order = state.order_for(record)
    if order and (
        abs(order.end_boot_ms - record.end_boot_ms) >= GRANT_MOVED_MS or order.end_unix_ms != record.end_unix_ms
    ):
        return Save(replace(record, end_boot_ms=order.end_boot_ms, end_unix_ms=order.end_unix_ms))
    memory = state.memory_of(record.allocation_id)
    if order and order.preempt_boot_ms is not None and not record.warned:
        return Save(replace(record, warned=True)) if memory.warned else Warn(record, order.preempt_boot_ms)
    if memory.progress in {Progress.TROUBLED, Progress.BEGUN}:
        return Grant(record)
    stale = memory.progress is not Progress.SOUND or boot_ms - memory.at_boot_ms >= VERIFY_EVERY_MS
    return Verify(record) if stale else None


def _bury(state: State, record: Record, _facts: Facts | None, boot_ms: int) -> Act | None:
    if record.state == "failed" and state.desired and not state.wants(record):
        return Save(_released(state, record, boot_ms))
    # The age of a tombstone of an earlier boot is unknown, so it is counted from this boot.
    since_boot_ms = record.since_boot_ms if record.boot_id == state.boot_id else 0
    old = record.state == "released" and boot_ms - since_boot_ms >= TOMBSTONE_MS
    named = state.desired is not None and record.allocation_id in state.desired.orders
    return Forget(record.allocation_id) if old and not named else None


def _released(state: State, record: Record, boot_ms: int) -> Record:
    return replace(record, state="released", boot_id=state.boot_id, since_boot_ms=boot_ms, retry_boot_ms=0)
