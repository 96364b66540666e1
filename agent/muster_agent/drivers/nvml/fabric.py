"""What one GPU says of its NVLink fabric, in whichever of four calls its driver knows.

Source: NVML's fabric structures, versions 1 to 4, and the drivers in which each came.
"""

import ctypes
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from muster_agent.core.fabric import Health, faults_of_mask, health_of_mask
from muster_agent.drivers.nvml.calls import NO_FUNCTION, NOT_SUPPORTED, WRONG_VERSION, nvml
from muster_shared.wire import Clique, Fabric, FabricState

_STATES: Final[dict[int, FabricState]] = {0: "notSupported", 1: "notStarted", 2: "inProgress", 3: "completed"}
_HEALTH: Final[dict[int, Health]] = {1: "healthy", 2: "unhealthy", 3: "limitedCapacity"}
_UNICAST: Final = 0  # the clique type that the older calls report alone


class FabricReader:
    """Remembers which call this driver knows, so that it is asked once."""

    def __init__(self) -> None:
        self._newest = 0  # index of the newest call that works

    def read(self, handle: Any) -> Fabric:  # noqa: ANN401 - an NVML handle
        """Read one GPU's fabric; step down to an older call only where the driver lacks the newer one."""
        for number, call in enumerate(_CALLS[self._newest :], self._newest):
            try:
                fabric = call(handle)
            except AttributeError:
                continue  # this pynvml is older than the call
            except nvml.NVMLError as error:
                code: int = error.value
                if code in {NO_FUNCTION, WRONG_VERSION}:
                    continue
                return Fabric(state="notSupported") if code == NOT_SUPPORTED else Fabric(state="unknown", status=code)
            self._newest = number
            return fabric
        return Fabric(state="notSupported")


def _v4(handle: Any) -> Fabric:  # noqa: ANN401 - an NVML handle
    told = nvml.c_nvmlGpuFabricInfo_v4_t()
    nvml.nvmlDeviceGetGpuFabricInfo_v4(handle, ctypes.byref(told))
    cliques = [Clique(kind=pair.type, id=pair.id) for pair in told.cliques[: min(told.numCliques, len(told.cliques))]]
    unicast = (clique.id for clique in cliques if clique.kind == _UNICAST)
    return _fabric(told, next(unicast, None), _summary(told), cliques)


def _v3(handle: Any) -> Fabric:  # noqa: ANN401 - an NVML handle
    told = nvml.c_nvmlGpuFabricInfo_v3_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(told))
    return _fabric(told, told.cliqueId, _summary(told))


def _v2(handle: Any) -> Fabric:  # noqa: ANN401 - an NVML handle
    told = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(told))
    return _fabric(told, told.cliqueId, health_of_mask(told.healthMask))


def _v1(handle: Any) -> Fabric:  # noqa: ANN401 - an NVML handle
    told = nvml.c_nvmlGpuFabricInfo_t()
    nvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(told))
    return _fabric(told, told.cliqueId, "notApplicable")


_CALLS: Final = (_v4, _v3, _v2, _v1)


def _summary(told: Any) -> Health:  # noqa: ANN401 - the struct of version 3 or 4
    # Some GPUs fill in the mask and leave the summary out.
    return _HEALTH.get(told.healthSummary) or health_of_mask(told.healthMask)


def _fabric(
    told: Any,  # noqa: ANN401 - one of four structs
    clique: int | None,
    health: Health,
    cliques: Iterable[Clique] = (),
) -> Fabric:
    # The state is one byte in C; pynvml declares four, and the other three are whatever the memory held.
    state = _STATES.get(told.state & 0xFF, "unknown")
    if state != "completed":
        return Fabric(state=state)
    mask = getattr(told, "healthMask", 0)
    return Fabric(
        state=state,
        status=told.status,
        cluster=str(UUID(bytes=bytes(told.clusterUuid))),
        clique=clique,
        health=health,
        health_mask=mask,
        faults=faults_of_mask(mask),
        cliques=list(cliques),
    )
