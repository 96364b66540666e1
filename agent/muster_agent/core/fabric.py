"""Whether a node's GPUs are on one NVLink fabric: the fabrics that they tell, to one domain or the reason why not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from muster_shared.wire import Fabric, FabricReason

Health = Literal["notApplicable", "healthy", "unhealthy", "limitedCapacity"]

_ZERO_UUID: Final = "00000000-0000-0000-0000-000000000000"
_WELL: Final = frozenset({"healthy", "notApplicable"})  # H100 offers no summary, and is no worse for it

_TRUE: Final = 1  # in each of the two-bit fields; 0 is not applicable, 2 is false
_DEGRADED_BANDWIDTH, _ROUTE_RECOVERY, _ROUTE_UNHEALTHY, _ACCESS_TIMEOUT = 0, 2, 4, 6  # where each begins
_CONFIGURATION_SHIFT: Final = 8  # where the four bits of incorrect configuration begin
_CONFIGURATION_NONE: Final = 1  # of them: nothing is incorrect; what is above names what is


@dataclass(frozen=True, slots=True)
class Domain:
    """The fabric that every GPU agrees on, as the label's value: `<cluster uuid>.<clique id>`."""

    name: str


def domain_of(fabrics: Sequence[Fabric | None]) -> Domain | FabricReason:
    """Name the domain that all GPUs share, or the first reason why there is none.

    Args:
        fabrics: One for each expected GPU, all of them answering; None where the driver knows no fabric.

    Source: NVML reports state, status, cluster and clique per GPU. `status` is valid only when completed. A clique
    number is unique only within its cluster; hosts without a cluster all say zero, which is no common fabric.
    """
    told = [fabric for fabric in fabrics if fabric is not None and fabric.state != "notSupported"]
    if not told:
        return "notSupported"
    if any(_failed(fabric) for fabric in told):
        return "error"
    if any(fabric.state != "completed" for fabric in told):
        return "inProgress"
    if any(fabric.health not in _WELL for fabric in told):
        return "unhealthy"
    if any(fabric.cluster in {None, _ZERO_UUID} for fabric in told):
        return "zeroUuid"
    names = {f"{fabric.cluster}.{fabric.clique}".lower() for fabric in told}
    return Domain(names.pop()) if len(names) == 1 and len(told) == len(fabrics) else "gpusDisagree"


def _failed(fabric: Fabric) -> bool:
    return fabric.state == "unknown" or (fabric.state == "completed" and (fabric.status != 0 or fabric.clique is None))


def health_of_mask(mask: int) -> Health:
    """Sum up a health mask, for drivers that report the mask without a summary.

    Source: NVML's fabric health mask: two bits each for degraded bandwidth (0), route recovery (2), route unhealthy
    (4) and access timeout (6), where 1 is true; four bits for incorrect configuration (8), where 1 is none.
    """
    if mask == 0:
        return "notApplicable"
    wrong = (mask >> _CONFIGURATION_SHIFT & 0xF) > _CONFIGURATION_NONE
    if wrong or any(mask >> shift & 3 == _TRUE for shift in (_ROUTE_RECOVERY, _ROUTE_UNHEALTHY, _ACCESS_TIMEOUT)):
        return "unhealthy"
    return "limitedCapacity" if mask >> _DEGRADED_BANDWIDTH & 3 == _TRUE else "healthy"
