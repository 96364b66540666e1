"""The only place of the agent that reads time or chance."""

import asyncio
import random
import time
from typing import Protocol

_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Time and chance as the agent sees them. Tests bring their own."""

    def unix_ms(self) -> int:
        """Milliseconds UTC. For people and for `since`: it may jump, so it decides nothing."""
        ...

    def boot_ms(self) -> int:
        """Milliseconds since the host booted, suspended time included; never falls within a boot."""
        ...

    async def sleep(self, ms: int) -> None:
        """Wait at least `ms` milliseconds; zero or less only lets others run."""
        ...

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
        ...


class SystemClock:
    """The host's clocks and chance."""

    def __init__(self) -> None:
        self._chance = random.SystemRandom()  # needs no seed, so cloned hosts do not retry in step

    def unix_ms(self) -> int:
        """Milliseconds UTC by the host's wall clock."""
        return time.time_ns() // _NS_PER_MS  # noqa: TID251 - this is clock.py

    def boot_ms(self) -> int:
        """Milliseconds since boot. CLOCK_BOOTTIME goes on in suspend, where CLOCK_MONOTONIC stops."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS

    async def sleep(self, ms: int) -> None:
        """Wait on the event loop, at least `ms` milliseconds."""
        await asyncio.sleep(max(ms, 0) / 1_000)

    def random(self) -> float:
        """A number in [0, 1) from the operating system."""
        return self._chance.random()
