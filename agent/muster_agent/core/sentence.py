"""How the agent fares, in one sentence: log line and `systemctl status` at once."""

from collections.abc import Sequence

from muster_agent.core.records import State
from muster_shared.wire import AssignmentStatus, Hold, Inventory


def sentence(
    state: State,
    inventory: Inventory | None,
    holds: Sequence[Hold],
    told: Sequence[AssignmentStatus],
    *,
    heard: bool,
) -> str:
    """Say what matters to whoever looks, the worst first.

    Args:
        state: Of the binding machine.
        inventory: None before the first reading.
        holds: As reported.
        told: The assignments as reported.
        heard: Whether the coordinator answered lately.
    """
    parts: list[str] = []
    if not heard:
        parts.append("no answer from the coordinator, keeping what is bound until its grants end")
    if inventory is None:
        parts.append("GPUs not read yet")
    else:
        seen = sum(gpu.seen for gpu in inventory.gpus)
        nvml = inventory.monitoring.nvml
        parts.append(f"{seen} of {len(inventory.gpus)} GPUs seen" if nvml == "ok" else f"NVML: {nvml}")
    if holds:
        parts.append(f"{len(holds)} holds ({', '.join(sorted({hold.cause for hold in holds}))})")
    parts += [
        f"{status.allocation_id} {status.state}" + (f" ({status.reason})" if status.reason else "") for status in told
    ]
    if not told:
        parts.append("nothing bound")
    parts.append(f"revision {state.applied_rev}")
    return "; ".join(parts)
