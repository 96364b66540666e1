"""Scripted GPUs: a file says what they are, another what befalls them. For tests, demo and first steps.

The state file is one `NodeReading` as JSON; the events file has one `GpuEvent` a line. Both are read again when
they change, so that a person can lose a GPU with an editor.
"""

import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from muster_agent.clock import Clock
from muster_agent.core.readings import GpuEvent, GpuReading, MigReading, NodeReading
from muster_agent.drivers.lines import Lines
from muster_shared.wire import Fabric

_POLL_MS: Final = 200  # soon enough for a person who watches, cheap enough for hundreds of agents on one host
_SLICES: Final = 7  # compute slices of an H100; its memory is split in eight
_READING: Final = TypeAdapter(NodeReading)
_EVENT: Final = TypeAdapter(GpuEvent)


class FakeGpus:
    """A `GpuDriver` over two files."""

    def __init__(self, state: Path, events: Path, clock: Clock) -> None:
        self._state = state
        self._events = events
        self._clock = clock
        self._closed = False

    async def read(self) -> NodeReading:
        """Read the state file; one that is missing or wrong is a driver in trouble, as with real GPUs."""
        try:
            return _READING.validate_json(self._state.read_bytes())
        except (OSError, ValueError) as error:
            return NodeReading("error", message=f"{self._state}: {type(error).__name__}")

    async def events(self) -> AsyncIterator[GpuEvent]:
        """Yield what is appended from now on: like NVML, nothing that happened before."""
        lines = Lines()
        offset = _size(self._events)
        while not self._closed:
            chunk = _read_from(self._events, offset)
            offset += len(chunk)
            for line in lines.feed(chunk):
                if event := _parsed(line):
                    yield replace(event, boot_ms=self._clock.boot_ms())
            await self._clock.sleep(_POLL_MS)

    async def let_go(self) -> bool:
        """Nothing holds a scripted GPU."""
        return True

    async def close(self) -> None:
        """Stop the listener at its next look."""
        self._closed = True


def fake_host(name: str, *, gpus: int = 8, cluster: str | None = None, clique: int = 1) -> NodeReading:
    """Describe a healthy host whose GPUs form one NVLink island.

    Args:
        name: GPU UUIDs are made of it: the same name is the same host.
        gpus: How many, 1 to 16.
        cluster: The fabric's cluster UUID; None is a host without a fabric.
        clique: The clique in that cluster.
    """
    fabric = Fabric(state="notSupported")
    if cluster is not None:
        fabric = Fabric(state="completed", cluster=cluster, clique=clique, health="healthy")
    return NodeReading(
        "ok",
        tuple(
            GpuReading(
                uuid=_uuid(f"{name}/{number}"),
                pci=f"0000:{0x0A + number:02x}:00",
                model="NVIDIA H100 80GB HBM3",
                memory_mib=81_559,
                numa=number * 2 // gpus,
                fabric=fabric,
                recovery_action=0,
            )
            for number in range(gpus)
        ),
        driver_version="580.95.05",
        events="ok",
    )


def with_mig(host: NodeReading, gpu: int, *slices: int) -> NodeReading:
    """Split one GPU of a host into MIG instances.

    Args:
        host: As `fake_host` made it.
        gpu: Its number.
        slices: Compute slices of each instance, seven in all at most; none is MIG mode without any instance.
    """
    whole = host.gpus[gpu]
    parts = tuple(
        MigReading(
            uuid=_uuid(f"{whole.uuid}/{number}/{count}", "MIG"),
            profile=f"{count}g.{10 * count}gb",
            slices=count,
            memory_mib=whole.memory_mib * count // (_SLICES + 1),
            gpu_instance=number + 1,
        )
        for number, count in enumerate(slices)
    )
    split = replace(whole, mig_mode=True, mig_slices_max=_SLICES, mig=parts)
    return replace(host, gpus=(*host.gpus[:gpu], split, *host.gpus[gpu + 1 :]))


def write_state(state: Path, reading: NodeReading) -> None:
    """Replace the state file in one step, so that no reader meets half of it."""
    draft = state.with_name(f".{state.name}.new")
    draft.write_bytes(_READING.dump_json(reading, indent=2))
    draft.replace(state)


def append_event(events: Path, event: GpuEvent) -> None:
    """Let an event happen. The listener stamps it with its own clock."""
    with events.open("ab") as file:
        file.write(_EVENT.dump_json(event) + b"\n")


def _uuid(name: str, kind: str = "GPU") -> str:
    digits = hashlib.sha256(name.encode()).hexdigest()
    return f"{kind}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read_from(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset, os.SEEK_SET)
            return file.read()
    except OSError:
        return b""


def _parsed(line: bytes) -> GpuEvent | None:
    try:
        return _EVENT.validate_json(line)
    except ValueError:
        return None  # a half-edited line is a person's slip, not a fault of a GPU
