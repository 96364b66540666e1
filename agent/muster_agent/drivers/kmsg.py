"""GPU faults from the kernel log, as they are written and as far back as the ring reaches."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Coroutine, Iterable
from pathlib import Path
from typing import Final

from muster_agent.clock import Clock
from muster_agent.core.kernel_log import KernelLog
from muster_agent.core.readings import GpuEvent, KernelLogReading
from muster_agent.drivers.lines import Lines

KMSG: Final = Path("/dev/kmsg")

_READ_BYTES: Final = 8_192  # one record of /dev/kmsg at most; a shorter buffer makes the kernel refuse it
_BURST: Final = 256  # records read before any is judged: /dev/kmsg gives one at a time
_POLL_MS: Final = 500  # where the path cannot be waited on: a plain file
_RETRY_MS: Final = 30_000  # a log that may not be read will hardly be readable sooner


class KernelLogReader:
    """Reads the log from the start of its ring, then waits for more.

    After a restart it reads the same records again: `Health` knows by their numbers which are old.
    """

    def __init__(self, path: Path, clock: Clock, *, any_facility: bool = False) -> None:
        """Remember where the log is.

        Args:
            path: `/dev/kmsg`, or a pipe or plain file of such records.
            clock: Stamps what is written while we watch.
            any_facility: Believe user space too. For tests.
        """
        self._path = path
        self._clock = clock
        self._any_facility = any_facility
        self._log = KernelLog()
        self._closed = asyncio.Event()
        self._message: str | None = "the kernel log has not been read yet"
        self._gaps = 0

    @property
    def reading(self) -> KernelLogReading:
        """Whether the log can be read now. It is down until it has been read to its present end once."""
        return KernelLogReading("down" if self._message else "ok", self._message, self._gaps)

    async def events(self) -> AsyncIterator[GpuEvent]:
        """Yield faults without end until `close`; where the log cannot be read, try again every 30 s."""
        while not self._closed.is_set():
            try:
                source = os.open(self._path, _flags(self._path))
            except OSError as error:
                self._message = f"{self._path}: {error.strerror}"
                await self._pause(_RETRY_MS)
                continue
            try:
                async for event in self._events_of(source):
                    yield event
            except OSError as error:
                self._message = f"{self._path}: {error.strerror}"
                await self._pause(_RETRY_MS)
            finally:
                os.close(source)

    def close(self) -> None:
        """End the listener. Harmless when repeated."""
        self._closed.set()

    async def _events_of(self, source: int) -> AsyncIterator[GpuEvent]:
        lines, live = Lines(), False
        while not self._closed.is_set():
            records, more = self._burst(source, lines)
            for event in self._faults(records, live=live):
                yield event
            if more:
                await asyncio.sleep(0)  # a storm of records must not keep the loop from its other work
            else:
                live, self._message = True, None
                await self._readable(source)

    def _burst(self, source: int, lines: Lines) -> tuple[list[bytes], bool]:
        """Read records until the end or until they are many; tell whether there may be more."""
        records: list[bytes] = []
        while len(records) < _BURST:
            chunk = self._chunk(source)
            if not chunk:
                return records, bool(records)
            records += lines.feed(chunk)
        return records, True

    def _chunk(self, source: int) -> bytes:
        """Read what is there; nothing where the end is reached for now."""
        while True:
            try:
                return os.read(source, _READ_BYTES)
            except BlockingIOError:
                return b""
            except OSError as error:
                if error.errno != errno.EPIPE:
                    raise
                self._gaps += 1  # the ring was overwritten before we came; the next read goes on behind the gap

    def _faults(self, records: Iterable[bytes], *, live: bool) -> Iterable[GpuEvent]:
        self._log, events = self._log.after_all(
            records, self._clock.boot_ms(), live=live, any_facility=self._any_facility
        )
        return events

    async def _readable(self, source: int) -> None:
        loop, more = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(source, more.set)
        except PermissionError:  # a plain file is always "readable": it cannot be waited on
            await self._pause(_POLL_MS)
            return
        try:
            await _first(more.wait(), self._closed.wait())
        finally:
            loop.remove_reader(source)

    async def _pause(self, ms: int) -> None:
        await _first(self._clock.sleep(ms), self._closed.wait())


def _flags(path: Path) -> int:
    # A pipe that is open for writing too never comes to its end when a writer leaves.
    return os.O_NONBLOCK | os.O_CLOEXEC | (os.O_RDWR if path.is_fifo() else os.O_RDONLY)


async def _first(*waits: Coroutine[object, object, object]) -> None:
    """Wait until one of these is done, and end the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
