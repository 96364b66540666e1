"""The real NVML process on a stub library: what is proven here is what C and another process can do to us."""

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pynvml
import pytest

from muster_agent.core.readings import NodeReading
from muster_agent.drivers.nvml.talk import Said, understood, written
from muster_agent.drivers.nvml_process import DEADLINE_MS, NvmlProcess
from muster_shared.wire import Fabric
from tests.support.stub import StubHost, build
from tests.support.virtual_clock import VirtualClock, settle

T = TypeVar("T")

CLUSTER = "9277d399-0674-a4a9-b64e-d85bb19ce2b0"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build(tmp_path_factory.mktemp("nvml"))
    if folder is None:
        pytest.skip("needs a C compiler")
    return folder


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: Path) -> StubHost:
    host = StubHost(tmp_path / "host", gpus=4)
    for name, value in host.environment(library).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    return host


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def gpus(host: StubHost, clock: VirtualClock, library: Path) -> AsyncIterator[NvmlProcess]:
    del host  # its environment must be there first
    driver = NvmlProcess(clock, library)
    yield driver
    await soon(driver.close())


async def soon(wait: Awaitable[T]) -> T:
    """Wait for what another process does at once; the limit is for a broken test only."""
    return await asyncio.wait_for(wait, 30)


async def read(gpus: NvmlProcess) -> NodeReading:
    return await soon(gpus.read())


def children() -> list[psutil.Process]:
    """The NVML processes of this test, living ones only."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "muster_agent.drivers.nvml" in child.cmdline()
    ]


async def hanging(gpus: NvmlProcess) -> "asyncio.Task[NodeReading]":
    """Begin a reading that will hang; return when the process is there."""
    reading = asyncio.ensure_future(gpus.read())
    while not children():  # noqa: ASYNC110 - another process comes to life; no event of ours tells it
        await asyncio.sleep(0)
    await settle()
    return reading


# Layouts


@pytest.mark.parametrize(
    ("struct", "size"),
    [
        ("c_nvmlGpuFabricInfo_t", 28),
        ("c_nvmlGpuFabricInfo_v2_t", 36),
        ("c_nvmlGpuFabricInfo_v3_t", 40),
        ("c_nvmlGpuFabricInfo_v4_t", 548),
        ("c_nvmlEventData_t", 32),
        ("nvmlPciInfo_t", 68),
        ("c_nvmlProcessInfo_v3_t", 24),
        ("c_nvmlFieldValue_t", 40),
    ],
)
def test_the_binding_lays_structs_out_as_the_stub_does(struct: str, size: int) -> None:
    """The stub asserts the same sizes when it is built."""
    assert ctypes.sizeof(getattr(pynvml, struct)) == size


# Readings


async def test_a_healthy_host_is_read_whole(host: StubHost, gpus: NvmlProcess) -> None:
    reading = await read(gpus)

    assert (reading.nvml, reading.events, reading.driver_version, reading.message) == ("ok", "ok", "580.95.05", None)
    assert [gpu.uuid for gpu in reading.gpus] == [host.uuid(number) for number in range(4)]
    first = reading.gpus[0]
    assert (first.pci, first.model, first.memory_mib, first.numa) == ("0000:0a:00", "NVIDIA H100 80GB HBM3", 81_559, 0)
    assert (first.recovery_action, first.remap_pending, first.remap_failed, first.lost) == (0, False, False, False)
    assert first.fabric == Fabric(state="completed", cluster=CLUSTER, clique=1, health="healthy")
    assert {gpu.island for gpu in reading.gpus} == {0}


async def test_an_older_driver_costs_only_what_it_does_not_know(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A13: the fabric call steps down; the state is one byte, whatever lies beside it (versions 2 and 3)."""
    host.set_all(health_mask=0b10_01_10_10, health=2, cluster="0a" * 16)
    host.rule("nvmlDeviceGetFieldValues", code=13)
    told = list[Fabric | None]()
    for newest in (4, 3, 2, 1):
        host.set_system(fabric_max=newest)
        told.append((await read(gpus)).gpus[3].fabric)

    whole = Fabric(
        state="completed",
        cluster="0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a",
        clique=1,
        health="unhealthy",  # A06; version 2 has only the mask to say so
        health_mask=0b10_01_10_10,
    )
    assert told == [whole] * 3 + [whole.model_copy(update={"health": "notApplicable", "health_mask": 0})]


async def test_fabric_states_are_told_apart(host: StubHost, gpus: NvmlProcess) -> None:
    """Cases A01, A07: no state is a failure of the reading."""
    for gpu, fields in enumerate(({"fabric_state": 0}, {"fabric_state": 1}, {"fabric_state": 2})):
        host.set(gpu, **fields)
    host.set(3, fabric_status=999)
    host.rule("nvmlDeviceGetGpuFabricInfo_v4", 0, code=3)
    reading = await read(gpus)

    told = [gpu.fabric for gpu in reading.gpus]
    assert [fabric and fabric.state for fabric in told] == ["notSupported", "notStarted", "inProgress", "completed"]
    assert told[3] is not None
    assert told[3].status == 999


async def test_a_call_that_a_card_does_not_offer_costs_its_field_alone(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A46: a card that supports nearly nothing is listed all the same, and so is one with odd errors."""
    host.set(0, memory=None, numa=None, cluster=None, fabric_state=0, fi_230=None, remap=None, links=None, events=0)
    host.rule("nvmlDeviceGetPciInfo_v3", 1, code=999)
    host.rule("nvmlDeviceGetGpuFabricInfo_v4", 1, code=999)
    plain, odd, *_ = reading = (await read(gpus)).gpus

    assert len(reading) == 4
    assert (plain.uuid, plain.memory_mib, plain.numa, plain.recovery_action, plain.error, plain.lost) == (
        host.uuid(0),
        0,
        None,
        None,
        None,
        False,
    )
    assert (odd.uuid, odd.pci, odd.lost, odd.error) == (host.uuid(1), "", False, "nvmlDeviceGetPciInfo: Unknown Error")
    assert odd.fabric == Fabric(state="unknown", status=999)


async def test_links_that_a_card_does_not_have_are_no_fault(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A47. GPUs 0 and 1 are linked to each other, 2 has no link up, 3 has no NVLink."""
    host.set(0, links=12, peer=1)
    host.set(1, links=12, peer=0)
    host.set(2, links=4, links_up=0)
    host.set(3, links=0)
    reading = await read(gpus)

    assert [gpu.island for gpu in reading.gpus] == [0xA00, 0xA00, 0xC00, 0xD00]
    assert [gpu.error for gpu in reading.gpus] == [None] * 4


async def test_row_remaps_and_retired_pages_are_read(host: StubHost, gpus: NvmlProcess) -> None:
    host.set(0, remap=1)
    host.set(1, remap=2)
    host.set(2, remap=None, retired=1)
    reading = await read(gpus)

    assert [(gpu.remap_pending, gpu.remap_failed) for gpu in reading.gpus] == [
        (True, False),
        (False, True),
        (True, False),
        (False, False),
    ]


async def test_only_processes_that_exist_are_told(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A44."""
    host.set(0, compute=f"0,4294967295,{os.getpid()}", graphics=f"{os.getpid()}", mps="1")
    reading = await read(gpus)

    assert [gpu.pids for gpu in reading.gpus] == [(1, os.getpid()), (), (), ()]


# GPUs that are lost


async def test_a_lost_gpu_does_not_stop_the_scan_of_the_others(host: StubHost, gpus: NvmlProcess) -> None:
    """Cases A15, A16: it is known by its handle, so even its name is told."""
    await read(gpus)
    host.lose(1)
    host.rule("nvmlDeviceGetComputeRunningProcesses_v3", 2, code=15)
    reading = await read(gpus)

    assert [(gpu.uuid, gpu.lost) for gpu in reading.gpus] == [
        (host.uuid(number), number in {1, 2}) for number in range(4)
    ]
    assert (reading.gpus[1].pci, reading.gpus[1].error) == ("0000:0b:00", "nvmlDeviceGetUUID: GPU is lost")


async def test_a_gpu_without_even_a_handle_is_told_without_a_name(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A14."""
    host.rule("nvmlDeviceGetHandleByIndex_v2", 1, code=999)
    reading = await read(gpus)

    assert [gpu.uuid for gpu in reading.gpus] == [host.uuid(0), host.uuid(2), host.uuid(3), None]
    assert reading.gpus[3].lost


async def test_events_of_the_other_gpus_come_while_one_is_lost_and_of_all_after_its_reset(
    host: StubHost, gpus: NvmlProcess
) -> None:
    events = gpus.events()
    await read(gpus)
    host.lose(1)
    assert (await read(gpus)).events == "ok"  # of those that answer
    host.xid(2, 31)
    assert (await soon(anext(events))).uuid == host.uuid(2)

    host.find(1)
    assert (await read(gpus)).events == "ok"
    host.xid(1, 48)
    event = await soon(anext(events))
    assert (event.uuid, event.code) == (host.uuid(1), 48)


# Events


async def test_faults_arrive_at_once_with_their_mig_instance(
    host: StubHost, gpus: NvmlProcess, clock: VirtualClock
) -> None:
    host.xid(0, 13)  # before anybody listened
    await read(gpus)
    events = gpus.events()
    host.xid(1, 79)
    host.xid(2, 94, (1, 0))
    told = [await soon(anext(events)) for _ in range(2)]

    assert [(event.uuid, event.code, event.instance) for event in told] == [
        (host.uuid(1), 79, None),
        (host.uuid(2), 94, "1/0"),
    ]
    assert {(event.source, event.boot_ms, event.fatal) for event in told} == {("nvml", clock.boot_ms(), None)}


async def test_a_changed_recovery_action_is_told_with_its_value(host: StubHost, gpus: NvmlProcess) -> None:
    """By the event of its own, and by the XID that says the same."""
    await read(gpus)
    host.set(3, fi_230=2)
    host.event(3, 0x8000, 0)
    host.xid(3, 154)
    events = gpus.events()
    told = [await soon(anext(events)) for _ in range(2)]

    assert [(event.code, event.uuid, event.recovery_action) for event in told] == [(154, host.uuid(3), 2)] * 2


async def test_it_is_said_of_how_many_gpus_faults_are_told(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A21 among them: no event set at all."""
    host.rule("nvmlEventSetCreate", code=999)
    assert (await read(gpus)).events == "down"
    host.unrule("nvmlEventSetCreate")
    assert (await read(gpus)).events == "ok"
    host.set(0, events=0)
    host.find(0)
    assert (await read(gpus)).events == "partial"
    host.set_all(events=0)
    host.find(0)
    assert (await read(gpus)).events == "down"


async def test_a_wait_that_always_fails_is_said_to_hear_nothing(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A21: registered is not heard."""
    await read(gpus)
    host.rule("nvmlEventSetWait_v2", code=999)
    while (await read(gpus)).events != "down":
        pass
    host.unrule("nvmlEventSetWait_v2")
    await read(gpus)  # makes a new set
    host.xid(0, 31)
    assert (await soon(anext(gpus.events()))).code == 31
    assert (await read(gpus)).events == "ok"


# NVML that does not start


async def test_nvml_that_does_not_start_is_tried_again_by_itself(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A40: in the same process."""
    told = list[tuple[str, str, bool]]()
    for code in (9, 12, 999, 4):
        host.set_system(init=code)
        reading = await read(gpus)
        told.append((reading.nvml, reading.events, reading.message is not None))
    [process] = children()

    assert told == [(status, "down", True) for status in ("driverNotLoaded", "libraryMissing", "error", "error")]
    host.set_system(init=0)
    assert (await read(gpus)).nvml == "ok"
    assert children() == [process]


async def test_a_driver_that_goes_and_comes_back_is_found_again(host: StubHost, gpus: NvmlProcess) -> None:
    await read(gpus)
    host.rule("nvmlDeviceGetCount_v2", code=1)
    assert (await read(gpus)).nvml == "error"
    host.set_system(fabric_max=2)  # and it is another one
    host.unrule("nvmlDeviceGetCount_v2")

    reading = await read(gpus)
    assert (reading.nvml, reading.events) == ("ok", "ok")


async def test_a_library_of_another_version_needs_another_process_and_gets_it(
    host: StubHost, gpus: NvmlProcess, clock: VirtualClock
) -> None:
    """Case A42: the old library stays mapped in the old process."""
    host.set_system(init=18)
    assert (await read(gpus)).nvml == "driverMismatch"
    assert (await read(gpus)).nvml == "driverMismatch"
    host.set_system(init=0)
    await clock.advance(60_000)
    reading = await read(gpus)
    while reading.nvml == "driverMismatch":  # the last words of the old process
        reading = await read(gpus)

    assert reading.nvml == "ok"


async def test_a_library_that_prints_disturbs_nobody(host: StubHost, gpus: NvmlProcess) -> None:
    host.set_system(noise=1)

    assert (await read(gpus)).nvml == "ok"


# A process that hangs or dies


async def test_a_hung_driver_is_waited_for_and_not_asked_twice(
    host: StubHost, gpus: NvmlProcess, clock: VirtualClock
) -> None:
    await read(gpus)
    [process] = children()
    events = gpus.events()
    host.rule("nvmlDeviceGetName", 2, hang=True)
    for _ in range(3):
        reading = asyncio.ensure_future(gpus.read())
        await clock.advance(DEADLINE_MS)
        assert (await soon(reading)).nvml == "hung"
    host.xid(1, 79)
    assert (await soon(anext(events))).code == 79  # the other thread of the process still hears
    assert children() == [process]

    host.unrule("nvmlDeviceGetName", 2)
    assert (await read(gpus)).nvml == "ok"
    assert children() == [process]


async def test_a_process_that_dies_is_said_and_replaced(host: StubHost, gpus: NvmlProcess) -> None:
    host.rule("nvmlDeviceGetName", 2, hang=True)
    reading = await hanging(gpus)
    [process] = children()
    process.kill()
    assert (await soon(reading)) == NodeReading("error", message="the NVML process ended with status -9")

    host.unrule("nvmlDeviceGetName", 2)
    events = gpus.events()
    assert (await read(gpus)).nvml == "ok"
    assert children() != [process]
    host.xid(1, 79)
    assert (await soon(anext(events))).code == 79


async def test_a_process_that_keeps_dying_is_started_ever_more_seldom(
    host: StubHost, gpus: NvmlProcess, clock: VirtualClock
) -> None:
    host.rule("nvmlInitWithFlags", hang=True)
    for pause_ms in (0, 0, 1_000, 2_000):
        if pause_ms:
            await clock.advance(pause_ms - 1)
            assert (await read(gpus)).message == "the NVML process ended with status -9"
            assert children() == []
            await clock.advance(1)
        reading = await hanging(gpus)
        children()[0].kill()
        assert (await soon(reading)).nvml == "error"


async def test_a_process_that_cannot_be_started_is_a_driver_in_trouble(
    gpus: NvmlProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    reading = await read(gpus)

    assert (reading.nvml, reading.message) == ("error", "the NVML process cannot be started: No such file or directory")


async def test_the_process_does_not_speak_to_systemd(gpus: NvmlProcess) -> None:
    """Case A48."""
    await read(gpus)

    assert "NOTIFY_SOCKET" not in children()[0].environ()


async def test_closing_ends_the_process(gpus: NvmlProcess) -> None:
    await read(gpus)
    listener = gpus.events()
    await soon(gpus.close())

    assert children() == []
    assert [event async for event in listener] == []


async def test_many_readings_leak_nothing(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A43, also over restarts of NVML within the process."""
    await read(gpus)
    [process] = children()
    before = process.num_fds()
    for _ in range(3):
        host.set_system(init=9)
        host.rule("nvmlDeviceGetCount_v2", code=1)
        assert (await read(gpus)).nvml == "error"
        assert (await read(gpus)).nvml == "driverNotLoaded"
        host.unrule("nvmlDeviceGetCount_v2")
        host.set_system(init=0)
        for _ in range(30):
            assert (await read(gpus)).nvml == "ok"

    assert process.num_fds() == before


# The talk between the two


@pytest.mark.parametrize(
    "line", [b"", b"garbage", b"[]", b'{"answers": "x"}', b'{"reading": {"nvml": "fine"}}', b"\xff"]
)
def test_what_is_no_answer_is_not_understood(line: bytes) -> None:
    assert understood(line) is None


def test_what_is_written_is_understood() -> None:
    said: Any = Said(answers=3, reading=NodeReading("hung", message="x\ny"))

    assert written(said).count(b"\n") == 1
    assert understood(written(said)) == said
