"""Whose program a fault hit, where that is beyond doubt."""

from collections.abc import Iterable, Mapping

from muster_agent.core.readings import GpuEvent, instance_name
from muster_agent.core.records import EXPOSED, Record
from muster_agent.core.suspects import Victim


def victim_of(event: GpuEvent, places: Mapping[str, str], records: Iterable[Record]) -> Victim | None:
    """Name the one assignment that can reach what the fault struck; None where it is nobody's, or several could.

    Args:
        event: Of a GPU, or of a MIG instance in it. One of a time before the agent looked is nobody's: who had the GPU
            then is not known.
        places: UUID -> PCI address of the node's GPUs.
        records: Of all allocations.
    """
    if not event.live:
        return None
    uuid = event.uuid or next((uuid for uuid, pci in places.items() if pci == event.pci), None)
    able = [record for record in records if record.state in EXPOSED and _reaches(record, uuid, event.instance)]
    return Victim(able[0].allocation_id, able[0].tenant_id) if len(able) == 1 else None


def _reaches(record: Record, uuid: str | None, struck: str | None) -> bool:
    if uuid in record.devices:
        return True
    parts = [one for one in record.instances if one.gpu == uuid]
    if struck is None:
        return bool(parts)
    # The kernel may name the GPU instance alone.
    return any(instance_name(one.gpu_instance, one.compute_instance).startswith(struck) for one in parts)
