"""The agent's tasks: scan, listen, act, report, poll. Each does one thing and waits; none waits for another.

A driver that hangs stops its own task only: heartbeats, ends of grants and the watchdog go on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

import structlog

from muster_agent.clock import Clock
from muster_agent.core import machine
from muster_agent.core.outcomes import after
from muster_agent.core.picture import Picture
from muster_agent.core.readings import GpuEvent, KernelLogReading
from muster_agent.core.records import State
from muster_agent.drivers.gpu import GpuDriver
from muster_agent.loop.hands import Hands
from muster_agent.loop.reporter import Reporter
from muster_agent.loop.senses import Senses
from muster_agent.sdnotify import Notifier
from muster_agent.uplink.patience import Uplink

POLL_MS: Final = 50_000  # below the minute after which idle connections are commonly cut
BLUR_MS: Final = 1_000  # an answer that took longer dates its times too vaguely and is asked for once more
PAUSE_MS: Final = 1_000  # before asking again where the coordinator did not wait as it was asked to
ACT_EVERY_MS: Final = 1_000  # an end is acted on within a second (reliability facts, section 6)
LOOK_PAUSE_MS: Final = 1_000  # between two readings, whatever the GPUs say: a storm must not become one of readings
_LOOK_AT_ONCE: Final = frozenset({79, 154})  # off the bus; another recovery action

_log = structlog.get_logger(part="agent")


class KernelLog(Protocol):
    """The kernel's own word on GPUs: the real log, or in tests a silent one."""

    @property
    def reading(self) -> KernelLogReading:
        """Whether it can be read now."""
        ...

    def events(self) -> AsyncIterator[GpuEvent]:
        """Yield faults without end until closed."""
        ...


class Agent:
    """One node's agent.

    Args:
        state: As read from the journal.
        gpus: The GPU driver; closed by whoever made it.
        kernel_log: The other source of faults; closed by whoever made it.
        senses: Judge what the two say.
        hands: Perform acts.
        reporter: Tells the coordinator.
        notifier: Tells systemd.
        clock: Time and chance.
        scan_ms: Between two readings of all GPUs.
        show: Takes a picture of it all, each second and whenever something changed.
    """

    def __init__(  # noqa: PLR0913 - the whole loop is joined here, and each part is used
        self,
        state: State,
        *,
        gpus: GpuDriver,
        kernel_log: KernelLog,
        senses: Senses,
        hands: Hands,
        reporter: Reporter,
        notifier: Notifier,
        clock: Clock,
        scan_ms: int,
        show: Callable[[Picture], None] = lambda _picture: None,
    ) -> None:
        self._state = state
        self._gpus = gpus
        self._kernel_log = kernel_log
        self._senses = senses
        self._hands = hands
        self._reporter = reporter
        self._notifier = notifier
        self._clock = clock
        self._scan_ms = scan_ms
        self._show = show
        self._look = asyncio.Event()  # a fault says that the GPUs are others than at the last reading
        self._looked = asyncio.Event()  # the GPUs were read once, so there is something to tell
        self._acted = asyncio.Event()  # what was bound before was checked once, so that a report may say so
        self._due = asyncio.Event()  # the machine should look again
        self._news = asyncio.Event()  # the next report should not wait for its heartbeat
        self._said = ""

    def join(self, cluster_id: str, node_id: str) -> str | None:
        """Take over an identity that the coordinator gave; a sentence tells why not."""
        joined = machine.joined(self._state, cluster_id, node_id)
        if isinstance(joined, str):
            return joined
        self._state = joined
        self._reporter.forget_answers()
        return None

    async def run(self, uplink: Uplink) -> None:
        """Serve until cancelled. What is bound stays bound.

        Raises:
            ExceptionGroup: A bug. The supervisor starts the agent again, and the disk holds all that matters.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._scan())
            tasks.create_task(self._listen(self._gpus.events()))
            tasks.create_task(self._listen(self._kernel_log.events()))
            tasks.create_task(self._act())
            tasks.create_task(self._report(uplink))
            tasks.create_task(self._poll(uplink))

    async def _scan(self) -> None:
        while True:
            reading = await self._gpus.read()
            self._senses.take_reading(reading, self._kernel_log.reading)
            self._due.set()
            self._notifier.alive()  # a driver that hangs has been found out by now, and a restart would not help it
            if not self._looked.is_set():
                self._looked.set()
                self._notifier.ready()
            await self._clock.sleep(min(LOOK_PAUSE_MS, self._scan_ms))
            await self._either(self._look, self._scan_ms - LOOK_PAUSE_MS)
            self._look.clear()

    async def _listen(self, events: AsyncIterator[GpuEvent]) -> None:
        async for event in events:
            if self._senses.take_event(event, self._state.records.values()):
                gpu = event.uuid or event.pci
                _log.warning("fault", source=event.source, code=event.code, gpu=gpu, text=event.text)
            self._due.set()
            if event.live and (event.kind == "changed" or event.code in _LOOK_AT_ONCE):
                self._look.set()

    async def _act(self) -> None:
        while True:
            self._due.clear()
            while act := machine.next_act(self._state, self._senses.facts, self._clock.boot_ms()):
                self._hands.beat()
                outcome = await self._hands.perform(act)
                self._state = after(self._state, act, outcome)  # a new desired state may have come meanwhile
                self._tell()
                await asyncio.sleep(0)  # between two writes to disk a heartbeat may go out
            self._hands.beat()
            self._acted.set()
            self._say()
            await self._either(self._due, ACT_EVERY_MS)

    async def _report(self, uplink: Uplink) -> None:
        await self._looked.wait()
        await self._acted.wait()
        while True:
            self._news.clear()
            answer = await uplink.report(lambda: self._reporter.compose(self._state))
            if not self._reporter.take_answer(answer):
                await self._either(self._news, self._reporter.pause_ms())

    async def _poll(self, uplink: Uplink) -> None:
        await self._looked.wait()
        while True:
            asked_boot_ms = self._clock.boot_ms()
            before = self._state.desired
            desired = await uplink.desired(self._desired_rev, POLL_MS)
            waited = self._clock.boot_ms() - asked_boot_ms > BLUR_MS
            if waited and (desired or (before and before.orders)):
                # Grants roll on without a new revision, and an answer that was long under way ends them too early.
                desired = await uplink.desired(lambda: 0, 1)
            taken = machine.take(self._state, desired) if desired else self._state
            if isinstance(taken, str):
                _log.warning("desired state refused", why=taken)
            else:
                self._state = taken
                self._senses.obey(desired.cleared if desired else ())
                self._due.set()
            moved = desired is not None and (before is None or desired.fence != before.fence)
            if isinstance(taken, str) or not (waited or moved):
                await self._clock.sleep(PAUSE_MS)

    def _desired_rev(self) -> int:
        return self._state.desired.fence.rev if self._state.desired else 0

    def _tell(self) -> None:
        if self._reporter.is_news(self._state):
            self._news.set()

    def _say(self) -> None:
        self._tell()
        picture = self._reporter.picture(self._state)
        self._show(picture)
        if picture.sentence != self._said:
            self._said = picture.sentence
            self._notifier.status(picture.sentence)
            _log.info("status", sentence=picture.sentence)

    async def _sleep(self, ms: int) -> None:
        await self._clock.sleep(ms)

    async def _either(self, event: asyncio.Event, ms: int) -> None:
        """Wait for the event, `ms` at most."""
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(event.wait()), asyncio.create_task(self._sleep(ms))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
