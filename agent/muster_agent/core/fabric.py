"""Whether a node's GPUs are on one NVLink fabric: the fabrics that they tell, to one domain or the reason why not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from muster_shared.wire import Fabric, FabricFault, FabricReason

Health = Literal["notApplicable", "healthy", "unhealthy", "limitedCapacity"]

_ZERO_UUID: Final = "00000000-0000-0000-0000-000000000000"
_WELL: Final = frozenset({"healthy", "notApplicable"})  # H100 offers no summary, and is no worse for it

_TRUE, _FALSE = 1, 2  # in each of the two-bit fields; 0 is not applicable
_FLAGS: Final[tuple[tuple[int, int, FabricFault], ...]] = (
    (0, _TRUE, "degradedBandwidth"),
    (2, _TRUE, "routeRecovery"),
    (4, _TRUE, "routeUnhealthy"),
    (6, _TRUE, "accessTimeout"),
    (14, _FALSE, "managerDisconnected"),
)
"""Where a two-bit field begins, its value that is a fault, and that fault."""

_CONFIGURATION_SHIFT: Final = 8  # where the four bits of incorrect configuration begin
_CONFIGURATION_NONE: Final = 1  # of them: nothing is incorrect; what is above names what is
_CONFIGURATIONS: Final[dict[int, FabricFault]] = {
    2: "incorrectSystemGuid",
    3: "incorrectChassis",
    4: "noPartition",
    5: "tooFewLinks",
    6: "gpuFirmware",
    7: "wrongLocation",
    8: "gpuState",
}
_BEARABLE: Final[frozenset[FabricFault]] = frozenset({"degradedBandwidth", "managerDisconnected"})
"""What leaves the fabric usable: slower, or without the manager that would heal it."""


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


def faults_of_mask(mask: int) -> list[FabricFault]:
    """Read out of a health mask what is wrong with the fabric at one GPU.

    Source: NVML's fabric health mask: two bits each for degraded bandwidth (0), route recovery (2), route unhealthy
    (4) and access timeout (6), where 1 is true; four bits for incorrect configuration (8), where 1 is none; two bits
    for the connection to the global fabric manager (14), where 2 is lost.
    """
    faults: list[FabricFault] = [fault for shift, bad, fault in _FLAGS if mask >> shift & 3 == bad]
    configuration = mask >> _CONFIGURATION_SHIFT & 0xF
    if configuration > _CONFIGURATION_NONE:
        faults.append(_CONFIGURATIONS.get(configuration, "incorrectConfiguration"))
    return faults


def health_of_mask(mask: int) -> Health:
    """Sum up a health mask, for drivers that report the mask without a summary."""
    if mask == 0:
        return "notApplicable"
    faults = set(faults_of_mask(mask))
    if faults - _BEARABLE:
        return "unhealthy"
    return "limitedCapacity" if "degradedBandwidth" in faults else "healthy"
