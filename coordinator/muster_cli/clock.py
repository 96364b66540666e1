"""The only place of the command line that waits or asks how long it has waited."""

import time
from typing import Protocol


class Clock(Protocol):
    """How a command waits: the system's clock, or a test's own."""

    def monotonic_s(self) -> float:
        """Return seconds since some fixed moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The clock of the machine."""

    def monotonic_s(self) -> float:
        """Return seconds since some fixed moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
