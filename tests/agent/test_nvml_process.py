"""The NVML process on a stub library: what another process can do to us."""

import asyncio
from typing import Any

import pytest

from muster_agent.core.readings import NodeReading
from muster_agent.drivers.nvml.talk import Said, understood, written
from muster_agent.drivers.nvml_process import DEADLINE_MS, NvmlProcess
from tests.support.nvml_host import children, hanging, read, soon
from tests.support.stub import StubHost
from tests.support.virtual_clock import VirtualClock

CLUSTER = "9277d399-0674-a4a9-b64e-d85bb19ce2b0"


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
