"""Where a GPU's NVLinks lead, and whether anything passes over them.

A link that is up proves little: on public record are hosts whose every link was trained while no GPU could reach
another's memory.

Source: the NVML reference; public reports on links that a card does not have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster_agent.core.islands import Links
from muster_agent.drivers.nvml.calls import INVALID_ARGUMENT, NOT_SUPPORTED, NVLINK_COUNT, Calls, nvml, place_of

_NO_SUCH_LINK: Final = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED})
_GPU, _SWITCH = 0, 2  # what an NVLink leads to
_P2P_NVLINK: Final = 2  # which of the peer-to-peer capabilities
_P2P_OK: Final = 0  # any other status names a reason why not


@dataclass(frozen=True, slots=True)
class Wiring:
    """The links of one GPU."""

    count: int
    down: tuple[int, ...]  # by number, rising
    ends: Links


def wiring_of(handle: Any, calls: Calls) -> Wiring:  # noqa: ANN401 - an NVML handle
    """Read every link that the GPU has; there may be gaps between their numbers."""
    states: dict[int, bool] = {}
    offered = calls.field(handle, NVLINK_COUNT)
    for link in range(nvml.NVML_NVLINK_MAX_LINKS if offered is None else offered):
        active = calls.ask("nvmlDeviceGetNvLinkState", handle, link, absent=_NO_SUCH_LINK)
        if active is not None:
            states[link] = bool(active)
        if calls.lost:
            break
    up = [link for link, active in states.items() if active]
    return Wiring(len(states), tuple(link for link in states if not states[link]), _ends(handle, up, calls))


def _ends(handle: Any, up: list[int], calls: Calls) -> Links:  # noqa: ANN401 - an NVML handle
    peers: set[str] = set()
    for link in up:
        kind = calls.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind == _SWITCH:
            return Links(to_switch=True)
        if kind == _GPU and (place := calls.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)):
            peers.add(place_of(place))
    return Links(peers=frozenset(peers))


def cuts(ends: Mapping[str, Links], handles: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Ask of each pair of GPUs that links join whether one reaches the other's memory; list those that do not.

    Args:
        ends: By PCI address. GPUs in MIG mode reach nobody, by design, and are left out by the caller.
        handles: By the same addresses.

    Cost: one call for each pair, 28 for 8 GPUs.
    """
    cut: dict[str, set[str]] = {pci: set() for pci in ends}
    calls = Calls()
    places = sorted(ends)
    for number, one in enumerate(places):
        for other in places[number + 1 :]:
            joined = (ends[one].to_switch and ends[other].to_switch) or other in ends[one].peers
            if not joined:
                continue
            status = calls.ask("nvmlDeviceGetP2PStatus", handles[one], handles[other], _P2P_NVLINK)
            if status not in {None, _P2P_OK}:
                cut[one].add(other)
                cut[other].add(one)
    return {pci: frozenset(peers) for pci, peers in cut.items()}
