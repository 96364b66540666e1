"""What binding asks of the senses, out of the latest reading and what was made of it."""

from collections.abc import Sequence

from muster_agent.core.readings import NodeReading
from muster_agent.core.records import Facts, Instance
from muster_shared.wire import FABRIC_DOMAIN, Hold, Inventory


def facts_of(inventory: Inventory, holds: Sequence[Hold], reading: NodeReading, read_boot_ms: int) -> Facts:
    """Join them.

    Args:
        inventory: What there is. A GPU in MIG mode offers its instances, and is itself no device to be handed over.
        holds: As reported.
        reading: The latest one of a working NVML.
        read_boot_ms: When it was taken; processes that began later are none that it saw.
    """
    devices = [gpu.uuid for gpu in inventory.gpus if gpu.seen and not gpu.mig_mode]
    devices += [instance.uuid for gpu in inventory.gpus if gpu.seen and gpu.mig_mode for instance in gpu.mig]
    return Facts(
        devices=frozenset(devices),
        holds=tuple(holds),
        fabric_domain=inventory.labels.get(FABRIC_DOMAIN),
        instances=tuple(
            Instance(one.uuid, gpu.uuid, one.gpu_instance, one.compute_instance)
            for gpu in reading.gpus
            if gpu.uuid
            for one in gpu.mig
        ),
        pids={gpu.uuid: gpu.pids for gpu in reading.gpus if gpu.uuid and gpu.pids},
        read_boot_ms=read_boot_ms,
    )
