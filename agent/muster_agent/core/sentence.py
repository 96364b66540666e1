"""How the agent fares, in one sentence: log line and `systemctl status` at once."""

from collections.abc import Sequence

from muster_agent.core.records import State
from muster_shared.wire import AssignmentStatus, Hold, Inventory, Monitoring


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
        parts += _monitoring(inventory.monitoring)
        if inventory.findings:
            causes = sorted({finding.cause for finding in inventory.findings})
            parts.append(f"{len(inventory.findings)} findings ({', '.join(causes)})")
    if holds:
        parts.append(f"{len(holds)} holds ({', '.join(sorted({hold.cause for hold in holds}))})")
    parts += [
        f"{status.allocation_id} {status.state}" + (f" ({status.reason})" if status.reason else "") for status in told
    ]
    if not told:
        parts.append("nothing bound")
    parts.append(f"revision {state.applied_rev}")
    return "; ".join(parts)


def _monitoring(eyes: Monitoring) -> list[str]:
    """Say which source of faults is shut; both open is nothing to say."""
    shut = [name for name, state in (("NVML events", eyes.events), ("kernel log", eyes.kernel_log)) if state != "ok"]
    if eyes.nvml != "ok" or not shut:
        return []
    return [f"faults may be missed: {' and '.join(shut)} not heard in full"]
