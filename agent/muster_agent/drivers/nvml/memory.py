"""How a GPU's memory fares: ECC counts, rows that were remapped, pages that were retired.

Source: the NVML reference. GPUs before Ampere retire whole pages, later ones remap rows.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from muster_agent.drivers.nvml.calls import Calls, nvml
from muster_shared.wire import MemoryHealth

_CORRECTED, _UNCORRECTED = 0, 1  # NVML's memory error types
_SINCE_LOAD, _EVER = 0, 1  # NVML's counter types
_RETIREMENT_CAUSES: Final = (0, 1)  # many single-bit errors, one double-bit error


@dataclass(frozen=True, slots=True)
class Memory:
    """Its history, and what waits for a repair."""

    health: MemoryHealth
    remap_pending: bool
    remap_failed: bool


def memory_of(handle: Any, calls: Calls) -> Memory:  # noqa: ANN401 - an NVML handle
    """Read all of it; what the GPU does not offer is zero."""
    remap = calls.ask("nvmlDeviceGetRemappedRows", handle)
    retired = 0
    if remap is None:
        pending = calls.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle) == 1
        pages = (calls.ask("nvmlDeviceGetRetiredPages", handle, cause) for cause in _RETIREMENT_CAUSES)
        retired = sum(len(told) for told in pages if told)
    else:
        pending = bool(remap[2])
    mode = calls.ask("nvmlDeviceGetEccMode", handle)
    ecc = None if mode is None else bool(mode[0])
    health = MemoryHealth(
        ecc=ecc,
        corrected=_errors(handle, calls, _CORRECTED, _SINCE_LOAD) if ecc else 0,
        uncorrected=_errors(handle, calls, _UNCORRECTED, _SINCE_LOAD) if ecc else 0,
        uncorrected_ever=_errors(handle, calls, _UNCORRECTED, _EVER) if ecc else 0,
        remapped_rows=int(remap[1]) if remap else 0,
        retired_pages=retired,
        sram_exceeded=bool(ecc) and _sram_exceeded(handle, calls),
    )
    return Memory(health, pending, bool(remap and remap[3]))


def _errors(handle: Any, calls: Calls, kind: int, since: int) -> int:  # noqa: ANN401 - an NVML handle
    return int(calls.ask("nvmlDeviceGetTotalEccErrors", handle, kind, since) or 0)


def _sram_exceeded(handle: Any, calls: Calls) -> bool:  # noqa: ANN401 - an NVML handle
    kind = getattr(nvml, "c_nvmlEccSramErrorStatus_v1_t", None)  # came with 12.535
    if kind is None:
        return False
    told = kind()
    answered = calls.ask("nvmlDeviceGetSramEccErrorStatus", handle, ctypes.byref(told))
    return answered is not None and bool(told.bThresholdExceeded)
