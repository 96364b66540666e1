"""What the NVML process and its parent say to each other: one JSON document a line.

The parent writes the number of a request. The process answers with that number and a reading; faults come between.
"""

from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter

from muster_agent.core.readings import GpuEvent, NodeReading


@dataclass(frozen=True, slots=True)
class Said:
    """One line of the process: a reading that answers a request, or a fault that just happened."""

    answers: int | None = None  # the number of the request
    reading: NodeReading | None = None
    event: GpuEvent | None = None  # its `boot_ms` is 0: the parent's clock stamps it


_SAID: Final = TypeAdapter(Said)


def written(said: Said) -> bytes:
    """Write one line, with its end."""
    return _SAID.dump_json(said, exclude_defaults=True) + b"\n"


def understood(line: bytes) -> Said | None:
    """Read one line; None where something else wrote it, as libraries do that print to standard output."""
    try:
        return _SAID.validate_json(line)
    except ValueError:
        return None
