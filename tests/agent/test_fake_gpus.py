import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.core.readings import GpuEvent
from muster_agent.drivers.fake import FakeGpus, append_event, fake_host, with_mig, write_state
from tests.support.virtual_clock import VirtualClock, settle

CLUSTER = "9277d399-0674-a4a9-b64e-d85bb19ce2b0"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def fakes(folder: Path, clock: VirtualClock) -> FakeGpus:
    return FakeGpus(folder / "gpus.json", folder / "gpus.events", clock)


async def test_the_state_file_is_read_anew_each_time(tmp_path: Path, clock: VirtualClock) -> None:
    gpus, host = fakes(tmp_path, clock), fake_host("one", cluster=CLUSTER)
    write_state(tmp_path / "gpus.json", host)
    assert await gpus.read() == host

    lost = replace(host, gpus=host.gpus[1:])
    write_state(tmp_path / "gpus.json", lost)
    assert await gpus.read() == lost


@pytest.mark.parametrize("content", [None, b"", b"[1]", b'{"nvml": "fine"}', b"\xff"])
async def test_a_state_file_that_cannot_be_read_is_a_driver_in_trouble(
    tmp_path: Path, clock: VirtualClock, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "gpus.json").write_bytes(content)
    reading = await fakes(tmp_path, clock).read()

    assert (reading.nvml, reading.events, reading.gpus) == ("error", "down", ())
    assert str(tmp_path) in str(reading.message)


async def test_only_events_from_now_on_are_told_and_a_slip_of_the_pen_is_none(
    tmp_path: Path, clock: VirtualClock
) -> None:
    gpus, path = fakes(tmp_path, clock), tmp_path / "gpus.events"
    uuid = fake_host("one").gpus[0].uuid
    append_event(path, GpuEvent("nvml", 13, uuid, None, 0))
    events = gpus.events()
    coming = asyncio.ensure_future(anext(events))
    await settle()
    with path.open("a") as file:
        file.write("{half\n")
    append_event(path, GpuEvent("nvml", 79, uuid, None, 0))
    await clock.advance(1_000)

    async with asyncio.timeout(10):
        event = await coming
    assert (event.code, event.uuid) == (79, uuid)
    assert event.boot_ms > 0
    await gpus.close()
    rest = asyncio.ensure_future(anext(events, None))
    await clock.advance(1_000)
    async with asyncio.timeout(10):
        assert await rest is None


def test_one_name_is_one_host() -> None:
    one, again, two = fake_host("one"), fake_host("one"), fake_host("two", gpus=16)

    assert one == again
    assert not {gpu.uuid for gpu in one.gpus} & {gpu.uuid for gpu in two.gpus}
    assert len({gpu.pci for gpu in two.gpus}) == 16
    assert [gpu.numa for gpu in one.gpus] == [0] * 4 + [1] * 4


async def test_a_scripted_gpu_can_be_split_into_mig_instances(tmp_path: Path, clock: VirtualClock) -> None:
    host = with_mig(fake_host("one"), 2, 3, 2, 1)
    write_state(tmp_path / "gpus.json", host)
    split = (await fakes(tmp_path, clock).read()).gpus[2]

    assert [(one.profile, one.slices, one.memory_mib) for one in split.mig] == [
        ("3g.30gb", 3, 30_584),
        ("2g.20gb", 2, 20_389),
        ("1g.10gb", 1, 10_194),
    ]
    assert (split.mig_mode, split.mig_slices_max, len({one.uuid for one in split.mig})) == (True, 7, 3)


async def test_nothing_holds_a_scripted_gpu(tmp_path: Path, clock: VirtualClock) -> None:
    assert await fakes(tmp_path, clock).let_go()
