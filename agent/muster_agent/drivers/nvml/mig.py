"""How one GPU is split into MIG instances.

Source: the NVML reference; public reports that instance UUIDs are opaque and that indexes have gaps.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from muster_agent.core.mig import profile_name
from muster_agent.core.readings import MigReading
from muster_agent.drivers.nvml.calls import INVALID_ARGUMENT, NOT_FOUND, Calls, text_of

_NO_SUCH: Final = frozenset({INVALID_ARGUMENT, NOT_FOUND})
_PROFILE: Final = re.compile(r"MIG ([0-9a-z.+]{1,32})$")  # the end of an instance's name


@dataclass(frozen=True, slots=True)
class Split:
    """Whether a GPU is split, and how."""

    mode: bool = False
    slices_max: int = 0
    instances: tuple[MigReading, ...] = ()


def split_of(handle: Any, memory_mib: int, calls: Calls) -> Split:  # noqa: ANN401 - an NVML handle
    """Read the present mode, not the pending one, and all instances.

    Args:
        handle: Of the whole GPU.
        memory_mib: Of the whole GPU; profiles are named by rounded shares of it.
        calls: Notes what goes wrong.
    """
    mode = calls.ask("nvmlDeviceGetMigMode", handle)
    if not mode or not mode[0]:
        return Split()
    count: int = calls.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    found = (calls.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index, absent=_NO_SUCH) for index in range(count))
    told = (_instance(instance, memory_mib, calls) for instance in found if instance is not None)
    return Split(mode=True, slices_max=count, instances=tuple(one for one in told if one is not None))


def _instance(instance: Any, memory_mib: int, calls: Calls) -> MigReading | None:  # noqa: ANN401 - an NVML handle
    uuid = calls.ask("nvmlDeviceGetUUID", instance, absent=_NO_SUCH)
    attributes = calls.ask("nvmlDeviceGetAttributes_v2", instance, absent=_NO_SUCH)
    if not uuid or attributes is None:
        return None  # removed while we looked
    part: int = attributes.gpuInstanceSliceCount
    slices: int = attributes.computeInstanceSliceCount or part
    named = _PROFILE.search(text_of(calls.ask("nvmlDeviceGetName", instance) or ""))
    return MigReading(
        uuid=text_of(uuid),
        profile=named[1] if named else profile_name(slices, part, attributes.memorySizeMB, memory_mib),
        slices=max(slices, 1),
        memory_mib=attributes.memorySizeMB,
        gpu_instance=calls.ask("nvmlDeviceGetGpuInstanceId", instance) or 0,
        compute_instance=calls.ask("nvmlDeviceGetComputeInstanceId", instance) or 0,
    )
