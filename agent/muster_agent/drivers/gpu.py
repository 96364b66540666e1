"""How the agent asks for its GPUs, whatever answers: NVML in a child process, or scripted GPUs."""

from collections.abc import AsyncIterator
from typing import Protocol

from muster_agent.core.readings import GpuEvent, NodeReading


class GpuDriver(Protocol):
    """The senses for GPUs. One task reads, one task listens; both may run at once."""

    async def read(self) -> NodeReading:
        """Read all GPUs. Never raises and answers by its own deadline: trouble is a status in the reading."""
        ...

    def events(self) -> AsyncIterator[GpuEvent]:
        """Yield faults as they happen, without end until `close`. One listener only."""
        ...

    async def let_go(self) -> bool:
        """Leave the GPUs alone until the next reading, as a reset needs it.

        Returns:
            False where a call that hangs still holds them.
        """
        ...

    async def close(self) -> None:
        """Let go of the GPUs. Harmless when repeated."""
        ...
