"""The loop on a clock of the test's own, with the coordinator in process: when it asks, tells, waits and acts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from muster_agent.core import machine
from muster_agent.core.desired import Fence
from muster_agent.core.readings import GpuEvent, HostReading, KernelLogReading, NodeReading
from muster_agent.drivers.bind.envfile import EnvFile
from muster_agent.drivers.fake import fake_host
from muster_agent.journal import Journal
from muster_agent.loop.agent import Agent
from muster_agent.loop.hands import Hands
from muster_agent.loop.reporter import Reporter
from muster_agent.loop.senses import Senses
from muster_agent.sdnotify import Notifier
from muster_agent.uplink import UnreachableError
from muster_agent.uplink.patience import Uplink
from muster_shared.wire import Assignment, Credential, DesiredState, Registration, Report, ReportAnswer
from tests.support.virtual_clock import VirtualClock

HOST = HostReading(hostname="gpu-01", machine_id="0123456789abcdef", boot_id="boot-1", cpus=4, memory_mib=1_024)
KNOWN = Credential(cluster_id="cluster_1", node_id="node_1", token="t", heartbeat_ms=5_000)


class Quiet:
    """Both senses of a healthy host on which nothing happens."""

    reading = KernelLogReading("ok")

    async def read(self) -> NodeReading:
        return fake_host("gpu-01", gpus=1)

    async def events(self) -> AsyncIterator[GpuEvent]:
        await asyncio.get_running_loop().create_future()
        yield GpuEvent("nvml", 0, None, None, 0)

    async def let_go(self) -> bool:
        return True

    async def close(self) -> None: ...


class Eventful(Quiet):
    """A host on which things happen when the test says so."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.happens: asyncio.Queue[GpuEvent] = asyncio.Queue()
        self.read_ms: list[int] = []

    async def read(self) -> NodeReading:
        self.read_ms.append(self.clock.boot_ms())
        return await super().read()

    async def events(self) -> AsyncIterator[GpuEvent]:
        while True:
            yield await self.happens.get()


@dataclass
class InProcess:
    """A coordinator that holds the poll for `poll_ms` and writes its answer only then."""

    clock: VirtualClock
    rev: int = 1
    poll_ms: int = 50_000
    grant_for_ms: int = 600_000
    epoch: int = 1
    wants_inventory: bool = False
    down: bool = False
    reports: list[tuple[int, Report]] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)  # boot clock, rev

    async def register(self, _registration: Registration) -> Credential:
        raise AssertionError("the node has an identity")

    async def report(self, _credential: Credential, report: Report) -> ReportAnswer:
        if self.down:
            raise UnreachableError("down")
        self.reports.append((self.clock.boot_ms(), report))
        return ReportAnswer(accepted=True, now_ms=1, heartbeat_ms=5_000, want_inventory=self.wants_inventory)

    async def desired(self, _credential: Credential, rev: int, wait_ms: int) -> DesiredState | None:
        self.asked.append((self.clock.boot_ms(), rev))
        if self.down:
            raise UnreachableError("down")
        if rev >= self.rev:
            before = self.rev
            await self.clock.sleep(min(wait_ms, self.poll_ms))
            if self.rev == before:
                return None
        return DesiredState(
            cluster_id="cluster_1",
            node_id="node_1",
            epoch=self.epoch,
            rev=self.rev,
            now_ms=1_800_000_000_000 + self.clock.boot_ms(),
            assignments=[
                Assignment(
                    allocation_id="alloc_a",
                    reservation_id="rsv_a",
                    generation=1,
                    tenant_id="acme",
                    devices=[gpu.uuid for gpu in fake_host("gpu-01", gpus=1).gpus if gpu.uuid],
                    starts_in_ms=-1,
                    ends_in_ms=self.grant_for_ms,
                    grant_for_ms=self.grant_for_ms,
                )
            ],
        )


async def inline(work: Callable[[], None]) -> None:
    work()


@dataclass
class Stage:
    clock: VirtualClock
    coordinator: InProcess
    journal: Journal

    @property
    def end_boot_ms(self) -> int:
        return self.journal.records()["alloc_a"].end_boot_ms


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def coordinator(clock: VirtualClock) -> InProcess:
    return InProcess(clock)


@asynccontextmanager
async def running(
    coordinator: InProcess, folder: Path, fence: Fence | None = None, gpus: Quiet | None = None
) -> AsyncIterator[Stage]:
    clock, journal = coordinator.clock, Journal.open(folder / "state")
    senses = Senses(HOST, journal, clock)
    agent = Agent(
        machine.awake(HOST.boot_id, {}, fence or Fence("cluster_1", "node_1")),
        gpus=gpus or Quiet(),
        kernel_log=Quiet(),
        senses=senses,
        hands=Hands(journal, [EnvFile(folder / "run")], clock, aside=inline),
        reporter=Reporter(senses, clock, "1"),
        notifier=Notifier(None),
        clock=clock,
        scan_ms=5_000,
    )
    uplink = Uplink(coordinator, clock, lambda: Registration(name="x", machine_id="0" * 8, agent_version="1"),
                    lambda _new: None, KNOWN)  # fmt: skip
    task = asyncio.create_task(agent.run(uplink))
    try:
        yield Stage(clock, coordinator, journal)
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        journal.close()


async def test_a_grant_is_counted_from_an_answer_that_was_not_waited_for(
    coordinator: InProcess, tmp_path: Path
) -> None:
    async with running(coordinator, tmp_path) as stage:
        await stage.clock.advance(2_000)
        started_ms = stage.clock.boot_ms() - 2_000
        assert stage.end_boot_ms == started_ms + 600_000

        await stage.clock.advance(20_000)
        coordinator.rev, coordinator.grant_for_ms = 2, 900_000  # the poll that is under way began 20 s ago
        await stage.clock.advance(35_000)

        (asked_again_ms,) = [at for at, rev in coordinator.asked if rev == 0 and at > started_ms]
        assert stage.end_boot_ms == asked_again_ms + 900_000


async def test_a_rolling_grant_is_fetched_anew_after_every_poll_without_news(
    coordinator: InProcess, tmp_path: Path
) -> None:
    async with running(coordinator, tmp_path) as stage:
        await stage.clock.advance(1_500_000)

        assert stage.end_boot_ms > stage.clock.boot_ms() + 500_000


async def test_a_coordinator_that_does_not_wait_is_not_hammered(coordinator: InProcess, tmp_path: Path) -> None:
    coordinator.poll_ms = 0
    async with running(coordinator, tmp_path) as stage:
        await stage.clock.advance(60_000)

    assert 50 <= len(coordinator.asked) <= 65


async def test_i34_a_restored_coordinator_is_not_obeyed_and_asked_with_patience(
    coordinator: InProcess, tmp_path: Path
) -> None:
    async with running(coordinator, tmp_path, Fence("cluster_1", "node_1", epoch=4, rev=9)) as stage:
        await stage.clock.advance(60_000)

        assert stage.journal.records() == {}
    assert len(coordinator.asked) <= 65
    assert coordinator.reports[-1][1].epoch == 4


async def test_heartbeats_come_a_little_early_and_never_late(coordinator: InProcess, tmp_path: Path) -> None:
    async with running(coordinator, tmp_path) as stage:
        await stage.clock.advance(300_000)

    at = [boot_ms for boot_ms, _ in coordinator.reports]
    gaps = [later - sooner for sooner, later in pairwise(at[5:])]
    assert min(gaps) >= 4_000
    assert max(gaps) <= 5_000
    assert len(set(gaps)) > 10


async def test_news_are_told_at_once(coordinator: InProcess, tmp_path: Path) -> None:
    async with running(coordinator, tmp_path) as stage:
        began_ms = stage.clock.boot_ms()
        await stage.clock.advance(1_500)

    first_bound = next(at for at, report in coordinator.reports if [s.state for s in report.assignments] == ["bound"])
    assert first_bound - began_ms <= 1_000


async def test_a_coordinator_that_always_wants_the_inventory_gets_it_with_each_heartbeat_only(
    coordinator: InProcess, tmp_path: Path
) -> None:
    coordinator.wants_inventory = True
    async with running(coordinator, tmp_path) as stage:
        await stage.clock.advance(60_000)

    assert len(coordinator.reports) <= 20
    assert all(report.inventory for _, report in coordinator.reports)


async def test_f07_reports_back_off_while_the_coordinator_is_down_and_the_grant_still_ends(
    coordinator: InProcess, tmp_path: Path
) -> None:
    async with running(coordinator, tmp_path) as stage:
        await stage.clock.advance(10_000)
        coordinator.down = True
        heard = len(coordinator.reports)

        await stage.clock.advance(800_000)
        assert len(coordinator.reports) == heard
        assert stage.journal.records()["alloc_a"].state == "released"

        coordinator.down = False
        await stage.clock.advance(60_000)
        assert len(coordinator.reports) > heard


async def test_a54_what_changed_is_read_anew_at_once_and_a_storm_of_changes_is_no_storm_of_readings(
    coordinator: InProcess, clock: VirtualClock, tmp_path: Path
) -> None:
    gpus = Eventful(clock)
    changed = GpuEvent("nvml", 0, "GPU-0001", None, 0, text="MIG configuration", kind="changed")
    async with running(coordinator, tmp_path, gpus=gpus):
        await clock.advance(3_000)
        gpus.happens.put_nowait(changed)
        await clock.advance(10)
        assert gpus.read_ms[-1] == clock.boot_ms() - 10

        before = len(gpus.read_ms)
        for _ in range(100):
            gpus.happens.put_nowait(changed)
            await clock.advance(30)
        assert len(gpus.read_ms) - before <= 3

        gpus.happens.put_nowait(GpuEvent("nvml", 31, "GPU-0001", None, 0))  # a program's fault changes nothing
        before = len(gpus.read_ms)
        await clock.advance(15_000)
        assert 3 <= len(gpus.read_ms) - before <= 4
