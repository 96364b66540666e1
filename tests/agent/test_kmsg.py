import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TypeVar

import pytest

from muster_agent.core.readings import GpuEvent
from muster_agent.drivers.kmsg import KernelLogReader
from muster_agent.drivers.lines import LINE_BYTES_MAX, Lines
from tests.support.virtual_clock import VirtualClock, settle

T = TypeVar("T")


def xid(seq: int, code: int) -> bytes:
    return b"4,%d,%d,-;NVRM: Xid (PCI:0000:0a:00): %d, x\n SUBSYSTEM=pci\n DEVICE=+pci:0000:0a:00.0\n" % (
        seq,
        seq,
        code,
    )


async def soon(wait: Awaitable[T]) -> T:
    """Wait for what another part of the system does at once; the limit is for a broken test only."""
    async with asyncio.timeout(10):
        return await wait


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def pipe(tmp_path: Path) -> AsyncIterator[tuple[Path, int]]:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    yield path, writer
    os.close(writer)


async def test_the_ring_is_read_from_its_start_and_then_followed(pipe: tuple[Path, int], clock: VirtualClock) -> None:
    path, writer = pipe
    os.write(writer, xid(1, 48) + xid(2, 31))
    reader = KernelLogReader(path, clock)
    events = reader.events()
    old = [await soon(anext(events)), await soon(anext(events))]
    coming = asyncio.ensure_future(anext(events))
    await settle()
    assert reader.reading.status == "ok"
    os.write(writer, xid(3, 79)[:20])
    await settle()
    os.write(writer, xid(3, 79)[20:])
    live = await soon(coming)
    reader.close()

    assert [(event.code, event.boot_ms) for event in [*old, live]] == [(48, 0), (31, 0), (79, clock.boot_ms())]
    assert [event async for event in events] == []


async def test_a_plain_file_is_looked_at_again_and_again(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(xid(1, 48))
    reader = KernelLogReader(path, clock)
    events = reader.events()
    assert (await soon(anext(events))).code == 48
    coming = asyncio.ensure_future(anext(events))
    await settle()
    path.write_bytes(xid(1, 48) + xid(2, 79))
    await clock.advance(1_000)

    assert (await soon(coming)).code == 79
    reader.close()
    assert [event async for event in events] == []


async def test_a_log_that_may_not_be_read_is_down_with_its_reason_until_it_may(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """Case A39. A missing path stands for a forbidden one: root may read everything."""
    path = tmp_path / "kmsg"
    reader = KernelLogReader(path, clock)
    assert reader.reading.status == "down"  # nothing was read yet
    coming = asyncio.ensure_future(anext(reader.events()))
    await settle()
    assert (reader.reading.status, reader.reading.message) == ("down", f"{path}: {os.strerror(errno.ENOENT)}")

    path.write_bytes(xid(1, 48))
    await clock.advance(30_000)

    assert (await soon(coming)).code == 48


async def test_an_overwritten_ring_is_counted_and_read_on(
    pipe: tuple[Path, int], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case A34. Only the kernel can answer EPIPE, so the call that reads is the one thing replaced here."""
    path, writer = pipe
    os.write(writer, xid(9, 48))
    answers = [OSError(errno.EPIPE, "overwritten"), OSError(errno.EPIPE, "overwritten")]
    real = os.read

    def read(source: int, size: int) -> bytes:
        if answers:
            raise answers.pop()
        return real(source, size)

    monkeypatch.setattr("muster_agent.drivers.kmsg.os.read", read)
    reader = KernelLogReader(path, clock)

    assert (await soon(anext(reader.events()))).code == 48
    assert reader.reading.gaps == 2


async def test_a_storm_of_records_is_told_in_bursts_between_which_the_loop_does_its_other_work(
    pipe: tuple[Path, int], clock: VirtualClock
) -> None:
    """Case A32: each burst is one event with its count, and the number of its latest record."""
    path, writer = pipe
    storm = b"".join(xid(number, 95) for number in range(600))
    assert os.write(writer, storm) == len(storm)
    reader, turns, seen = KernelLogReader(path, clock), 0, list[GpuEvent]()

    async def listen() -> None:
        async for event in reader.events():
            seen.append(event)

    listening = asyncio.ensure_future(listen())
    while sum(event.count for event in seen) < 600:
        turns += 1
        await asyncio.sleep(0)
    reader.close()
    await soon(listening)

    assert 2 <= len(seen) <= turns < 20
    assert seen[-1].seq == 599


def test_lines_are_joined_whatever_the_chunks() -> None:
    lines = Lines()

    assert [lines.feed(chunk) for chunk in (b"a", b"b\nc\n\nd", b"", b"\n")] == [[], [b"ab", b"c", b""], [], [b"d"]]


@pytest.mark.parametrize("step", [10_000, LINE_BYTES_MAX, 2 * LINE_BYTES_MAX])
def test_a_line_too_long_costs_itself_alone(step: int) -> None:
    stream = b"one\n" + b"x" * (LINE_BYTES_MAX + 1) + b"\ntwo\n"
    lines = Lines()
    got = [line for at in range(0, len(stream), step) for line in lines.feed(stream[at : at + step])]

    assert got == [b"one", b"two"]
