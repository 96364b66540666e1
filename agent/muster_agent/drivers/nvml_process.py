"""NVML at arm's length: a process that owns it, asked with a deadline, left alone when it hangs.

A hung call into the driver cannot be ended: killing the process would not free it, and a second one would hang
beside it. So a silent process is waited for, and only a dead one is replaced.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from muster_agent.clock import Clock
from muster_agent.core.readings import GpuEvent, NodeReading
from muster_agent.drivers.lines import Lines
from muster_agent.drivers.nvml.talk import understood

DEADLINE_MS: Final = 10_000
"""A scan of 16 GPUs takes well below a second; a driver that recovers one from an error has taken five."""

FIRST_DEADLINE_MS: Final = 30_000
"""Of a process that has not answered yet: it starts, and the driver wakes GPUs that nobody has kept awake."""

_BACK_OFF_MS: Final = (0, 1_000, 2_000, 5_000, 10_000, 30_000)  # after so many deaths without an answer between
_EVENTS_MAX: Final = 1_024  # a storm that nobody listens to; the kernel log tells it too
_CHUNK_BYTES: Final = 65_536  # what a pipe holds
_FAREWELL_MS: Final = 2_000  # a process that waits for events takes one second to notice


class NvmlProcess:
    """A `GpuDriver` over `python -m muster_agent.drivers.nvml`. The process starts with the first reading."""

    def __init__(self, clock: Clock, library_dir: Path | None = None) -> None:
        """Prepare.

        Args:
            clock: Counts deadlines and stamps events.
            library_dir: Where libnvidia-ml.so.1 is, if not where the loader finds it by itself.
        """
        self._clock = clock
        self._library_dir = library_dir
        self._events: asyncio.Queue[GpuEvent | None] = asyncio.Queue(_EVENTS_MAX)
        self._process: Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._asked = 0  # number of the latest request
        self._answer: asyncio.Future[NodeReading] | None = None  # to that request; None when none is open
        self._deaths = 0
        self._next_start_ms = 0
        self._has_answered = False  # this process
        self._trouble = NodeReading("error")  # what is said while no process runs

    async def read(self) -> NodeReading:
        """Read all GPUs, or tell why not, within the deadline."""
        asking = asyncio.ensure_future(self._ask())
        deadline_ms = DEADLINE_MS if self._has_answered else FIRST_DEADLINE_MS
        limit = asyncio.ensure_future(self._clock.sleep(deadline_ms))
        try:
            await asyncio.wait((asking, limit), return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            return NodeReading("hung", message=f"NVML has not answered for {deadline_ms} ms; waiting for it")
        finally:
            asking.cancel()
            limit.cancel()
            await asyncio.gather(asking, limit, return_exceptions=True)

    async def events(self) -> AsyncIterator[GpuEvent]:
        """Yield faults until `close`, across any number of processes."""
        while (event := await self._events.get()) is not None:
            yield event

    async def let_go(self) -> bool:
        """End the process, so that a reset finds nobody on the GPUs. The next reading starts another."""
        ended = await self._farewell()
        if ended:
            self._deaths = self._next_start_ms = 0  # it died by our own wish
        return ended

    async def close(self) -> None:
        """Ask the process to end, and give it two seconds. One that hangs ends by itself when its call returns."""
        if not await self._farewell() and self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait(None)

    async def _farewell(self) -> bool:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if self._listener is None:
            return True
        limit = asyncio.ensure_future(self._clock.sleep(_FAREWELL_MS))
        await asyncio.wait((self._listener, limit), return_when=asyncio.FIRST_COMPLETED)
        limit.cancel()
        await asyncio.gather(limit, return_exceptions=True)
        return self._listener.done()

    async def _ask(self) -> NodeReading:
        if self._answer is not None:
            # The answer to a request that was given up: only once it is in can the process hear the next one.
            await asyncio.shield(self._answer)
            self._answer = None
            self._has_answered = True
        process = await self._running()
        if process is None or process.stdin is None:
            return self._trouble
        self._asked += 1
        self._answer = asyncio.get_running_loop().create_future()
        process.stdin.write(b"%d\n" % self._asked)
        reading = await asyncio.shield(self._answer)
        self._answer = None
        self._has_answered = True
        return reading

    async def _running(self) -> Process | None:
        """Return the process, started anew if it is due; None while it is too early for that."""
        if self._process is not None and self._listener is not None and not self._listener.done():
            return self._process
        if self._clock.boot_ms() < self._next_start_ms:
            return None
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "muster_agent.drivers.nvml", stdin=PIPE, stdout=PIPE, env=self._environment()
            )
        except OSError as error:
            self._ended(f"the NVML process cannot be started: {error.strerror}")
            return None
        self._has_answered = False
        self._listener = asyncio.create_task(self._listen(self._process))
        return self._process

    def _environment(self) -> dict[str, str]:
        # systemd's socket is ours alone: a child that answers on it confuses the watchdog. Nor does the child need our
        # settings, and a join token least of all.
        environment = {
            name: value
            for name, value in os.environ.items()
            if name != "NOTIFY_SOCKET" and not name.startswith("MUSTER_AGENT_")
        }
        if self._library_dir is not None:
            environment["LD_LIBRARY_PATH"] = str(self._library_dir)
        return environment

    async def _listen(self, process: Process) -> None:
        """Sort what the process says until it ends."""
        assert process.stdout is not None
        lines = Lines()
        while chunk := await process.stdout.read(_CHUNK_BYTES):
            for line in lines.feed(chunk):
                self._hear(line)
        status = await process.wait()
        self._ended(f"the NVML process ended with status {status}")
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self._trouble)

    def _ended(self, message: str) -> None:
        self._next_start_ms = self._clock.boot_ms() + _BACK_OFF_MS[min(self._deaths, len(_BACK_OFF_MS) - 1)]
        self._deaths += 1
        if self._trouble.nvml != "driverMismatch":
            self._trouble = NodeReading("error", message=message)

    def _hear(self, line: bytes) -> None:
        said = understood(line)
        if said is None:
            return
        if said.event is not None and not self._events.full():
            self._events.put_nowait(replace(said.event, boot_ms=self._clock.boot_ms()))
        if said.reading is not None and said.answers == self._asked and self._answer is not None:
            self._trouble = said.reading
            if said.reading.nvml != "driverMismatch":  # that one ends the process, and is no sign of life
                self._deaths = 0
            if not self._answer.done():
                self._answer.set_result(said.reading)
