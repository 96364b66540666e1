"""The whole agent against a coordinator's stand-in: its files, its reports, its restarts."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from muster_agent.clock import SystemClock
from muster_agent.config import Config
from muster_agent.core.readings import GpuEvent, HostReading, NodeReading
from muster_agent.drivers.fake import FakeGpus, append_event, fake_host, write_state
from muster_agent.drivers.gpu import GpuDriver
from muster_agent.journal import Journal
from muster_agent.sdnotify import Notifier
from muster_agent.serving import serve
from muster_shared.wire import Assignment, Registration, Report
from tests.support.stand_in import StandIn, problem, serving

HOST = HostReading(hostname="gpu-01", machine_id="0123456789abcdef", boot_id="boot-1", cpus=4, memory_mib=1_024)
APPLICANT = Registration(name="gpu-01", machine_id="0123456789abcdef", agent_version="1")
READING = fake_host("gpu-01", gpus=2)
GPUS = [gpu.uuid for gpu in READING.gpus if gpu.uuid]


def assignment(allocation_id: str = "alloc_a", generation: int = 1, grant_for_ms: int = 3_600_000) -> Assignment:
    return Assignment(
        allocation_id=allocation_id,
        reservation_id="rsv_a",
        generation=generation,
        tenant_id="acme",
        devices=GPUS,
        starts_in_ms=-1,
        ends_in_ms=3_600_000,
        grant_for_ms=grant_for_ms,
    )


def states(report: Report) -> dict[str, str]:
    return {status.allocation_id: status.state for status in report.assignments}


@dataclass
class Node:
    """A host: its folder, and the coordinator that it talks to."""

    folder: Path
    url: str
    host: HostReading = HOST

    @property
    def config(self) -> Config:
        return Config(
            coordinator_url=self.url,
            state_dir=self.folder / "state",
            run_dir=self.folder / "run",
            cdi_dir=self.folder / "cdi",
            scan_interval=20,
            gpu_driver="fake",
            fake_state=self.folder / "gpus.json",
            fake_events=self.folder / "events",
            kernel_log=self.folder / "kmsg",
        )

    @property
    def artefacts(self) -> set[str]:
        return {path.name for path in (*self.folder.glob("cdi/*"), *self.folder.glob("run/reservations/*"))}

    @asynccontextmanager
    async def agent(self, gpus: GpuDriver | None = None) -> AsyncIterator[None]:
        """Run the agent for as long as the block lasts."""
        clock, journal = SystemClock(), Journal.open(self.folder / "state")
        gpus = gpus or FakeGpus(self.folder / "gpus.json", self.folder / "events", clock)
        serving_it = asyncio.create_task(serve(self.config, journal, self.host, APPLICANT, gpus, Notifier(None), clock))
        try:
            yield
        finally:
            serving_it.cancel()
            await asyncio.gather(serving_it, return_exceptions=True)
            await gpus.close()
            journal.close()


@pytest.fixture
async def stand_in() -> StandIn:
    return StandIn()


@pytest.fixture
async def node(stand_in: StandIn, tmp_path: Path) -> AsyncIterator[Node]:
    write_state(tmp_path / "gpus.json", READING)
    (tmp_path / "events").touch()
    (tmp_path / "kmsg").touch()
    async with serving(stand_in) as url:
        yield Node(tmp_path, url)


BOTH = {"muster-alloc_a.json", "alloc_a.env"}


async def test_it_joins_reports_binds_what_is_wanted_and_releases_what_is_not(stand_in: StandIn, node: Node) -> None:
    async with node.agent():
        first = await stand_in.until(lambda report: report.inventory is not None)
        assert first.inventory
        assert [gpu.uuid for gpu in first.inventory.gpus] == GPUS
        assert stand_in.registrations[0].gpus == tuple(GPUS)
        assert stand_in.registrations[0].name == "gpu-01"

        stand_in.want(assignment())
        await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})
        assert node.artefacts == BOTH

        stand_in.want()
        await stand_in.until(lambda report: report.applied_rev == 3 and not report.assignments)
        assert node.artefacts == set()


async def test_reports_rise_and_an_inventory_that_is_known_is_only_named(stand_in: StandIn, node: Node) -> None:
    async with node.agent():
        await stand_in.until(lambda report: report.inventory is None)
        await stand_in.until(lambda report: report.inventory is None)
        stand_in.known_hash = None  # the coordinator lost it
        await stand_in.until(lambda report: report.inventory is not None)

    seqs = [report.seq for report in stand_in.reports]
    assert seqs == sorted(set(seqs))


async def test_f05_a_restart_without_a_coordinator_keeps_what_is_bound(stand_in: StandIn, node: Node) -> None:
    stand_in.want(assignment())
    async with node.agent():
        await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})
    assert node.artefacts == BOTH

    (node.folder / "run" / "reservations" / "alloc_a.env").unlink()
    stand_in.instead["desired"] = [lambda: problem(503, "UNAVAILABLE", "not now") for _ in range(1_000)]
    async with node.agent():
        report = await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})

    assert report.applied_rev == 0
    assert node.artefacts == BOTH


async def test_a50_after_a_reboot_the_bind_is_told_as_lost(stand_in: StandIn, node: Node) -> None:
    stand_in.want(assignment())
    async with node.agent():
        await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})

    node.host = replace(HOST, boot_id="boot-2")
    async with node.agent():
        report = await stand_in.until(lambda report: states(report) == {"alloc_a": "lostByReboot"})
        assert report.boot_id == "boot-2"
        assert node.artefacts == set()

        stand_in.want(assignment(generation=2))
        await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})


async def test_a_grant_that_ends_is_let_go_without_being_told(stand_in: StandIn, node: Node) -> None:
    stand_in.want(assignment(grant_for_ms=1_500))
    async with node.agent():
        await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})
        await stand_in.until(lambda report: states(report) == {"alloc_a": "failed"})

        assert node.artefacts == set()


async def test_a30_a_hold_survives_a_restart_and_keeps_binds_away(stand_in: StandIn, node: Node) -> None:
    async with node.agent():
        await stand_in.until(lambda report: report.inventory is not None)
        fault = GpuEvent(source="nvml", code=48, uuid=GPUS[0], pci=None, boot_ms=0)
        append_event(node.folder / "events", fault)
        await stand_in.until(lambda report: [hold.code for hold in report.holds] == [48])

    stand_in.want(assignment())
    async with node.agent():
        report = await stand_in.until(lambda report: states(report) == {"alloc_a": "failed"})

    assert [hold.device for hold in report.holds] == [GPUS[0]]
    assert report.assignments[0].reason == f"held: xid 48 on {GPUS[0]}"
    assert node.artefacts == set()


async def test_a40_without_a_driver_it_says_so_and_goes_on_until_there_is_one(stand_in: StandIn, node: Node) -> None:
    write_state(node.folder / "gpus.json", NodeReading("driverNotLoaded", message="load the NVIDIA driver"))
    stand_in.want(assignment())
    async with node.agent():
        report = await stand_in.until(lambda report: report.inventory is not None)
        assert report.inventory
        assert report.inventory.monitoring.nvml == "driverNotLoaded"
        assert "nvmlDown" in {hold.cause for hold in report.holds}

        write_state(node.folder / "gpus.json", READING)
        await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})


class HangsAfterOneReading(FakeGpus):
    answered = False

    async def read(self) -> NodeReading:
        if self.answered:
            await asyncio.get_running_loop().create_future()
        self.answered = True
        return await super().read()


async def test_f19_a_driver_that_hangs_stops_neither_heartbeats_nor_ends(stand_in: StandIn, node: Node) -> None:
    gpus = HangsAfterOneReading(node.folder / "gpus.json", node.folder / "events", SystemClock())
    stand_in.want(assignment())
    async with node.agent(gpus):
        await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})
        seq = stand_in.reports[-1].seq
        await stand_in.until(lambda report: report.seq > seq)
        stand_in.want()
        await stand_in.until(lambda report: not report.assignments)


async def test_a22_after_the_coordinator_forgot_it_the_node_joins_again_under_its_new_name(
    stand_in: StandIn, node: Node
) -> None:
    stand_in.want(assignment())
    async with node.agent():
        await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})
        stand_in.node_id, stand_in.rev = "node_2", 0
        stand_in.want()
        await stand_in.until(lambda report: report.applied_rev == 1 and not report.assignments)

    identity = json.loads((node.folder / "state" / "identity.json").read_text())
    assert identity["nodeId"] == "node_2"


async def test_an_unreadable_record_holds_the_node_until_an_operator_looked(stand_in: StandIn, node: Node) -> None:
    records = node.folder / "state" / "allocations"
    records.mkdir(parents=True)
    (records / "alloc_x.json").write_text('{"version": 2, "content": {}}')
    stand_in.want(assignment())
    async with node.agent():
        report = await stand_in.until(lambda report: states(report) == {"alloc_a": "failed"})

    assert [(hold.cause, hold.clears_by) for hold in report.holds] == [("unknownBindings", "operator")]
    assert report.applied_rev == 0

    (records / "alloc_x.bad").unlink()
    async with node.agent():
        await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})


# --- The command


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(0)  # the event loop waits for it
        yield receiver


async def started(node: Node, **variables: str) -> asyncio.subprocess.Process:
    file = node.folder / "agent.toml"
    file.write_text(
        "\n".join(
            f"{key} = {json.dumps(value)}"
            for key, value in {
                "coordinator_url": node.url,
                "name": "gpu-07",
                "scan_interval": "50ms",
                "gpu_driver": "fake",
                "fake_state": str(node.folder / "gpus.json"),
                "fake_events": str(node.folder / "events"),
                "kernel_log": str(node.folder / "kmsg"),
                "cdi_dir": str(node.folder / "cdi"),
                "run_dir": str(node.folder / "run"),
                "machine_id_file": str(node.folder / "machine-id"),
            }.items()
        )
    )
    (node.folder / "machine-id").write_text("fedcba9876543210\n")
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "muster_agent", "run", "--config", str(file),
        env={"MUSTER_AGENT_STATE_DIR": str(node.folder / "state"), **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def until_said(systemd: socket.socket, word: bytes) -> None:
    async with asyncio.timeout(30):
        while not (await asyncio.get_running_loop().sock_recv(systemd, 4_096)).startswith(word):
            pass


async def test_the_command_serves_until_sigterm_and_leaves_what_is_bound(
    stand_in: StandIn, node: Node, systemd: socket.socket
) -> None:
    stand_in.want(assignment())
    process = await started(node, NOTIFY_SOCKET=str(node.folder / "notify"))
    await until_said(systemd, b"READY=1")
    await until_said(systemd, b"WATCHDOG=1")
    await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})

    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        out, err = await process.communicate()

    assert (process.returncode, err) == (0, b"")
    await until_said(systemd, b"STOPPING=1")
    assert node.artefacts == BOTH
    assert stand_in.registrations[0].name == "gpu-07"
    assert stand_in.registrations[0].machine_id == "fedcba9876543210"
    lines = [json.loads(line) for line in out.splitlines()]
    assert {"started", "joined", "act", "status", "stopped"} <= {line["event"] for line in lines}
    assert not [line for line in lines if stand_in.token in json.dumps(line)]


async def test_a_second_agent_on_the_same_state_folder_ends_with_a_clear_word(node: Node) -> None:
    async with node.agent():
        process = await started(node)
        async with asyncio.timeout(30):
            _, err = await process.communicate()

    assert process.returncode == 1
    assert b"another agent" in err
    assert b"Traceback" not in err


async def test_a_machine_id_that_no_node_can_have_is_told_with_the_key_that_mends_it(node: Node) -> None:
    (node.folder / "odd").write_text("?\n")
    process = await started(node, MUSTER_AGENT_MACHINE_ID_FILE=str(node.folder / "odd"))
    async with asyncio.timeout(30):
        _, err = await process.communicate()

    assert process.returncode == 2
    assert b"machine_id_file:" in err
    assert b"Traceback" not in err


async def test_every_mistake_of_the_configuration_is_told_at_once(node: Node) -> None:
    mistakes = {"SCAN_INTERVAL": "soon", "GPU_DRIVER": "amd", "STATE_DRI": "/x", "COORDINATOR_URL": "ftp://x"}
    process = await started(node, **{f"MUSTER_AGENT_{key}": value for key, value in mistakes.items()})
    async with asyncio.timeout(30):
        _, err = await process.communicate()

    assert process.returncode == 2
    for key in mistakes:
        assert f"MUSTER_AGENT_{key}:".encode() in err
    assert b"Traceback" not in err
