"""Measures what an agent costs its host: a core's share, memory, open files, and the bytes of a report without news.

The agent and its NVML process are the real ones, on eight GPUs of the stub library and with a heartbeat of 5 s.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psutil
from aiohttp import web

from muster_agent.core.inventory import InventoryFold
from muster_agent.core.readings import HostReading, KernelLogReading
from muster_agent.drivers.fake import fake_host
from muster_shared.codec import decode, encode
from muster_shared.wire import Assignment, AssignmentStatus, Credential, DesiredState, Report, ReportAnswer
from scripts.bench_rounds import fds_grown
from scripts.bench_row import Row
from tests.support.stub import StubHost, build

GROUP: Final = "agent"
_GPUS: Final = 8
_HEARTBEAT_MS: Final = 5_000
_SETTLE_S: Final = 15  # imports, joining and the first bind are not what an agent costs in a year
_MEASURE_S: Final = 60  # twelve heartbeats
_ROUNDS: Final = 10_000
# Below 1 % of a core, 80 MiB in both processes, flat, and a report that fits one packet with its headers.
_CPU_TARGET, _RSS_TARGET, _FDS_TARGET, _BYTES_TARGET = 1.0, 80.0, 0.0, 400.0
_MIB: Final = 1 << 20
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - no disk is measured, and the folder in it is made for one run
_SCANS: Final = 3  # of a program that is started for each of them


def rows(progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure the group."""
    progress(f"an agent on {_GPUS} stub GPUs for {_SETTLE_S} s and then {_MEASURE_S} s")
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder) / "library")
        if library is None:
            progress("no C compiler: the stub library cannot be built, and two figures are left out")
        else:
            yield from asyncio.run(_running(Path(folder), library))
    progress(f"{_ROUNDS} rounds of scan, acts and heartbeat")
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Row(GROUP, "agent_fd_growth", asyncio.run(fds_grown(Path(folder), _ROUNDS)), "fds", _FDS_TARGET, _ROUNDS)
    yield _report_row()


async def _running(folder: Path, library: Path) -> list[Row]:
    host = StubHost(folder / "host", gpus=_GPUS)
    async with _coordinator(host.uuid(0)) as url:
        agent = _started(folder, url, host, library)
        try:
            await asyncio.sleep(_SETTLE_S)
            processes = [agent, *agent.children(recursive=True)]
            before = sum(map(_cpu_s, processes))
            await asyncio.sleep(_MEASURE_S)
            used_s = sum(map(_cpu_s, processes)) - before
            memory = _memory_mib(processes)
        finally:
            agent.terminate()
            await asyncio.to_thread(agent.wait, 30)
    # The obvious way: start a program for each scan, and two interpreters that hold nothing.
    scan_s = _one_shot_cpu_s(host, library)
    bare = _bare_rss_mib()
    return [
        Row(GROUP, "agent_cpu_percent", round(100 * used_s / _MEASURE_S, 2), "%", _CPU_TARGET,
            round(100 * scan_s * 1_000 / _HEARTBEAT_MS, 2)),
        Row(GROUP, "agent_rss_mib", round(memory, 1), "MiB", _RSS_TARGET, round(2 * bare, 1)),
    ]  # fmt: skip


def _started(folder: Path, url: str, host: StubHost, library: Path) -> psutil.Popen:
    (folder / "machine").write_text("0123456789abcdef\n")
    settings = {
        "COORDINATOR_URL": url,
        "STATE_DIR": folder / "state",
        "RUN_DIR": folder / "run",
        "CDI_DIR": folder / "cdi",
        "HOOKS_DIR": folder / "hooks",
        "KERNEL_LOG": host.kernel_log,
        "MACHINE_ID_FILE": folder / "machine",
        "NVML_LIBRARY_DIR": library,
    }
    variables = {f"MUSTER_AGENT_{name}": str(value) for name, value in settings.items()}
    environment = {**os.environ, **host.environment(library), **variables, "PYTHONPYCACHEPREFIX": str(folder / "pyc")}
    # Compiled beforehand, as the package is: a compiler's memory is not the agent's.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for module in ("muster_agent.app", "muster_agent.drivers.nvml.__main__"):
        subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, check=True)
    return psutil.Popen([sys.executable, "-m", "muster_agent", "run"], env=environment, stdout=subprocess.DEVNULL)


def _memory_mib(processes: list[psutil.Process]) -> float:
    """Return the memory that they hold together: what each has alone, and once what they share, such as libraries."""
    each = [process.memory_full_info() for process in processes]
    return (sum(one.uss for one in each) + max(one.rss - one.uss for one in each)) / _MIB


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _one_shot_cpu_s(host: StubHost, library: Path) -> float:
    begun = os.times()
    for _ in range(_SCANS):
        subprocess.run(
            [sys.executable, "-m", "muster_agent.drivers.nvml"],
            input=b"1\n",
            env={**os.environ, **host.environment(library)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    ended = os.times()
    return (ended.children_user + ended.children_system - begun.children_user - begun.children_system) / _SCANS


def _bare_rss_mib() -> float:
    with psutil.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as bare:
        bare.stdout.readline()
        rss: int = bare.memory_info().rss
        bare.communicate(b"\n")
    return rss / _MIB


def _report_row() -> Row:
    host = HostReading("gpu-0001.cluster.example", "0123456789abcdef0123456789abcdef", "b" * 36, 128, 2_000_000)
    fold = InventoryFold().after(fake_host("gpu-0001", gpus=_GPUS), host, 1_000, KernelLogReading("ok"))
    report = Report(
        boot_id=host.boot_id,
        seq=864_000_000,
        agent_version="0.1.0",
        epoch=12,
        applied_rev=3_456,
        inventory_hash=fold.hash,
        holds=[],
        assignments=[
            AssignmentStatus(allocation_id=f"alloc_{'0' * 26}", generation=3, state="bound", guard_armed=True)
        ],
    )
    value = len(encode(report))
    whole = len(encode(report.model_copy(update={"inventory": fold.inventory})))
    return Row(GROUP, "report_unchanged_bytes", value, "bytes", _BYTES_TARGET, whole)


@asynccontextmanager
async def _coordinator(gpu: str) -> AsyncIterator[str]:
    """Serve the three calls of a node, with one allocation that is bound all the time."""

    async def register(_request: web.Request) -> web.Response:
        known = Credential(cluster_id="cluster_1", node_id="node_1", token="t", heartbeat_ms=_HEARTBEAT_MS)  # noqa: S106 - guards nothing
        return web.Response(body=encode(known), content_type="application/json", status=201)

    async def report(request: web.Request) -> web.Response:
        told = decode(Report, await request.read())
        answer = ReportAnswer(
            accepted=True, now_ms=1, heartbeat_ms=_HEARTBEAT_MS, want_inventory=not seen and told.inventory is None
        )
        seen.append(told.seq)
        return web.Response(body=encode(answer), content_type="application/json")

    async def desired(request: web.Request) -> web.Response:
        if int(request.query["rev"]) >= 1:
            await asyncio.sleep(float(request.query["wait"].removesuffix("s")))
            return web.Response(status=304)
        bound = Assignment(
            allocation_id="alloc_1", reservation_id="rsv_1", generation=1, tenant_id="acme", devices=[gpu],
            starts_in_ms=-1, ends_in_ms=3_600_000, grant_for_ms=300_000,
        )  # fmt: skip
        state = DesiredState(
            cluster_id="cluster_1", node_id="node_1", epoch=1, rev=1, now_ms=1_800_000_000_000, assignments=[bound]
        )
        return web.Response(body=encode(state), content_type="application/json")

    seen: list[int] = []
    app = web.Application()
    app.router.add_post("/v1/nodes/register", register)
    app.router.add_post("/v1/nodes/{node}/report", report)
    app.router.add_get("/v1/nodes/{node}/desired", desired)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
