"""Lets an agent do thousands of rounds on a clock that jumps, and counts the files that are open before and after."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import structlog

from muster_agent.core import machine
from muster_agent.core.desired import Fence
from muster_agent.core.readings import GpuEvent, HostReading, KernelLogReading
from muster_agent.door.status_file import StatusFile
from muster_agent.drivers.bind.cdi import Cdi
from muster_agent.drivers.bind.envfile import EnvFile
from muster_agent.drivers.bind.hooks import Hooks
from muster_agent.drivers.device_nodes import DeviceNodes
from muster_agent.drivers.fake import FakeGpus, fake_host, write_state
from muster_agent.drivers.leavings import Leavings
from muster_agent.drivers.sentry import Sentry
from muster_agent.holders.processes import Allowed, ProcessTable
from muster_agent.journal import Journal
from muster_agent.loop.agent import Agent
from muster_agent.loop.hands import Hands
from muster_agent.loop.reporter import Reporter
from muster_agent.loop.senses import Senses
from muster_agent.sdnotify import Notifier
from muster_agent.uplink.patience import Uplink
from muster_shared.wire import Assignment, Credential, DesiredState, Registration, Report, ReportAnswer
from tests.support.virtual_clock import VirtualClock

_ROUND_MS: Final = 5_000  # a scan, a heartbeat, five looks at what is due
_WARM_ROUNDS: Final = 20  # what is opened once is open by then
_HOST: Final = HostReading("gpu-01", "0123456789abcdef", "boot-1", 4, 1_024)
_KNOWN: Final = Credential(cluster_id="cluster_1", node_id="node_1", token="t", heartbeat_ms=_ROUND_MS)  # noqa: S106 - guards nothing


class _QuietGpus(FakeGpus):
    """Scripted GPUs that nothing befalls: a clock that jumps would spend its time on looking for events."""

    async def events(self) -> AsyncIterator[GpuEvent]:
        """Wait without end."""
        await asyncio.get_running_loop().create_future()
        yield GpuEvent("nvml", 0, None, None, 0)


class _QuietLog:
    """A kernel log without faults."""

    reading = KernelLogReading("ok")

    async def events(self) -> AsyncIterator[GpuEvent]:
        """Wait without end."""
        await asyncio.get_running_loop().create_future()
        yield GpuEvent("kernelLog", 0, None, None, 0)


class _Coordinator:
    """Answers in process; every twentieth poll brings a bind, every other twentieth its end."""

    def __init__(self, clock: VirtualClock, gpu: str) -> None:
        self._clock = clock
        self._gpu = gpu
        self._polls = 0

    async def register(self, _registration: Registration) -> Credential:
        return _KNOWN

    async def report(self, _credential: Credential, _report: Report) -> ReportAnswer:
        return ReportAnswer(accepted=True, now_ms=1, heartbeat_ms=_ROUND_MS)

    async def desired(self, _credential: Credential, rev: int, wait_ms: int) -> DesiredState | None:
        self._polls += 1
        wanted_rev = self._polls // 20 + 1
        if rev >= wanted_rev:
            await self._clock.sleep(wait_ms)
            return None
        bound = Assignment(
            allocation_id=f"alloc_{wanted_rev}", reservation_id="rsv_1", generation=1, tenant_id="acme",
            devices=[self._gpu], starts_in_ms=-1, ends_in_ms=10**9, grant_for_ms=10**9,
        )  # fmt: skip
        return DesiredState(
            cluster_id="cluster_1", node_id="node_1", epoch=1, rev=wanted_rev, now_ms=1,
            assignments=[bound] if wanted_rev % 2 else [],
        )  # fmt: skip


async def fds_grown(folder: Path, rounds: int) -> int:
    """Return how many more files are open after so many rounds, binds and unbinds among them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    reading = fake_host("gpu-01", gpus=8)
    write_state(folder / "gpus.json", reading)
    clock, journal = VirtualClock(), Journal.open(folder / "state")
    gpus = _QuietGpus(folder / "gpus.json", folder / "events", clock)
    agent = _agent(folder, clock, journal, gpus)
    task = asyncio.create_task(agent.run(_uplink(clock, reading.gpus[0].uuid)))
    await clock.advance(_WARM_ROUNDS * _ROUND_MS)
    before = _open_files()
    await clock.advance(rounds * _ROUND_MS)
    grown = _open_files() - before
    states = [json.loads(path.read_text())["content"]["state"] for path in (folder / "state" / "allocations").glob("*")]
    assert "released" in states or "bound" in states, "the rounds bound nothing"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await gpus.close()
    journal.close()
    structlog.reset_defaults()
    return grown


def _agent(folder: Path, clock: VirtualClock, journal: Journal, gpus: FakeGpus) -> Agent:
    nodes = DeviceNodes(folder / "proc", folder / "dev")
    drivers = (
        EnvFile(folder / "run"),
        Cdi(folder / "cdi", nodes),
        Hooks(folder / "etc", folder / "hooks", 1_000),
    )
    sentry = Sentry(folder / "run", nodes, drivers, Allowed(), "boot-1", clock.boot_ms, folder / "no-systemd")
    senses = Senses(_HOST, journal, clock)
    hands = Hands(journal, drivers, clock, leavings=Leavings(nodes, ProcessTable()), sentry=sentry, aside=_inline)
    return Agent(
        machine.awake("boot-1", {}, Fence("cluster_1", "node_1")),
        gpus=gpus,
        kernel_log=_QuietLog(),
        senses=senses,
        hands=hands,
        reporter=Reporter(senses, clock, "0.1.0"),
        notifier=Notifier(None),
        clock=clock,
        scan_ms=_ROUND_MS,
        show=StatusFile(folder / "run", clock).show,
    )


def _uplink(clock: VirtualClock, gpu: str | None) -> Uplink:
    applicant = Registration(name="gpu-01", machine_id="0123456789abcdef", agent_version="0.1.0")
    return Uplink(_Coordinator(clock, gpu or ""), clock, lambda: applicant, lambda _new: None, _KNOWN)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _inline(work: Callable[[], None]) -> None:
    work()
