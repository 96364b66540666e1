"""Calls into NVML, each of which may fail by itself. The only file that imports pynvml."""

import ctypes
from typing import Any, Final

import pynvml as _pynvml

nvml: Any = _pynvml  # ships no types

INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, TIMEOUT, NO_FUNCTION, LOST, WRONG_VERSION = 2, 3, 6, 10, 13, 15, 25
_GONE: Final = frozenset({LOST, 16, 28})  # lost, reset required, GPU not found
_NOT_OFFERED: Final = frozenset({NOT_SUPPORTED, NO_FUNCTION, WRONG_VERSION})

RECOVERY_ACTION: Final = 230  # a field that came with driver 570
NVLINK_COUNT: Final = 91  # a field


class Calls:
    """Asks one GPU, and remembers whether it is gone and what went wrong first."""

    def __init__(self) -> None:
        self.lost = False
        self.failed = False  # a call did not succeed, for whatever reason
        self.error: str | None = None

    def ask(self, name: str, *args: object, absent: frozenset[int] = frozenset()) -> Any:  # noqa: ANN401 - whatever the NVML function returns
        """Call an NVML function by name; None where this driver or this GPU has no answer.

        Args:
            name: One that this pynvml may be too old to know.
            args: What it takes.
            absent: Return codes that here mean "there is no such thing", and are no error.
        """
        call = getattr(nvml, name, None)
        if call is None:
            self.failed = True
            return None
        try:
            return call(*args)
        except nvml.NVMLError as error:
            code: int = error.value
            self.lost = self.lost or code in _GONE
            if code not in _NOT_OFFERED | absent:
                self.error = self.error or f"{name}: {error}"
        except nvml.NVMLLibraryMismatchError:
            pass  # pynvml's own word for a function that this driver has in an older version only
        except ValueError as error:  # a text that is none: pynvml decodes it
            self.error = self.error or f"{name}: {error}"
        self.failed = True
        return None

    def field(self, handle: Any, number: int) -> int | None:  # noqa: ANN401 - an NVML handle
        """Read one of NVML's numbered fields; None where this driver or this GPU does not offer it."""
        # The call succeeds where the field is unknown: each field carries its own return code.
        values = self.ask("nvmlDeviceGetFieldValues", handle, [number])
        return int(values[0].value.uiVal) if values and values[0].nvmlReturn == 0 else None


def place_of(told: Any) -> str:  # noqa: ANN401 - NVML's PCI struct
    """Write a PCI address as `pci_address` does."""
    return f"{told.domain:04x}:{told.bus:02x}:{told.device:02x}"


def address_of(handle: Any) -> int:  # noqa: ANN401 - an NVML handle
    """Return what tells one handle from another: NVML gives equal handles for one GPU until that is reset."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def text_of(value: str | bytes) -> str:
    """Read a text, which older pynvml leave as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
