"""Words for people: a picture of the agent, or of the host alone, as lines of text."""

from collections.abc import Iterable, Sequence

from muster_agent.core.picture import Held, Picture
from muster_shared.time import format_duration
from muster_shared.wire import FABRIC_DOMAIN, Gpu, Hold, Inventory

_MS_PER_S = 1_000


def picture_lines(picture: Picture) -> Iterable[str]:
    """Show the whole agent, what matters most first."""
    yield picture.sentence
    yield ""
    node = f"{picture.node_id} of {picture.cluster_id}" if picture.node_id else "not joined yet"
    desired = "none yet" if picture.desired_rev is None else f"{picture.desired_rev}"
    heard = "answers" if picture.heard else "does not answer"
    yield f"node         {node}"
    yield f"coordinator  {heard}, epoch {picture.epoch}; revision {picture.applied_rev} applied, {desired} desired"
    if picture.inventory:
        yield from inventory_lines(picture.inventory)
    yield from hold_lines(picture.holds)
    yield from _assignment_lines(picture.assignments)


def inventory_lines(inventory: Inventory) -> Iterable[str]:
    """Show what the host is."""
    eyes = inventory.monitoring
    driver = f"driver {inventory.driver_version}" if inventory.driver_version else "no driver"
    yield f"monitoring   NVML {eyes.nvml}, events {eyes.events}, kernel log {eyes.kernel_log}; {driver}"
    if eyes.message:
        yield f"             {eyes.message}"
    domain = inventory.labels.get(FABRIC_DOMAIN)
    yield f"fabric       {domain or f'no {FABRIC_DOMAIN}: {inventory.fabric_reason}'}"
    for finding in inventory.findings:
        yield f"finding      {finding.cause}: {finding.message or finding.device or 'the node'}"
    if inventory.gpus:
        yield ""
        yield from table(("GPU", "PCI", "MODEL", "MEMORY", "ISLAND", "NUMA", "STATE"), map(_gpu_row, inventory.gpus))


def hold_lines(holds: Sequence[Hold]) -> Iterable[str]:
    """Show why devices may not be booked."""
    if holds:
        yield ""
        rows = (
            (
                hold.device or "the node",
                hold.cause if hold.code is None else f"{hold.cause} {hold.code}",
                hold.clears_by,
                hold.message or "",
            )
            for hold in holds
        )
        yield from table(("HELD", "CAUSE", "CLEARS BY", ""), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """Set rows under a head, each column as wide as its widest cell."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    state = f"MIG, {len(gpu.mig)} instances" if gpu.mig_mode else "whole"
    numa = "-" if gpu.numa is None else str(gpu.numa)
    memory = f"{gpu.memory_mib >> 10} GiB"
    return (gpu.uuid, gpu.pci, gpu.model, memory, str(gpu.island), numa, state if gpu.seen else "missing")


def _assignment_lines(assignments: Sequence[Held]) -> Iterable[str]:
    yield ""
    if not assignments:
        yield "nothing is bound"
        return
    rows = (
        (
            one.allocation_id,
            one.state,
            one.tenant_id or "-",
            ", ".join(one.devices) or "-",
            _remaining(one.ends_in_ms),
            "armed" if one.guard_armed else "not armed",
            one.reason or "",
        )
        for one in assignments
    )
    yield from table(("ALLOCATION", "STATE", "TENANT", "DEVICES", "ENDS IN", "GUARD", ""), rows)


def _remaining(ms: int | None) -> str:
    if ms is None:
        return "-"
    return "over" if ms <= 0 else format_duration(ms // _MS_PER_S * _MS_PER_S)
