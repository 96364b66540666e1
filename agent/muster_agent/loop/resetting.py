"""A GPU reset between two tenants: NVML is let go of, a helper with root's rights resets, NVML is taken up again."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from muster_agent.clock import Clock
from muster_agent.core.readings import GpuEvent, GpuReading, NodeReading
from muster_agent.drivers import commands
from muster_agent.drivers.bind import BindError
from muster_agent.drivers.gpu import GpuDriver
from muster_shared.wire import Fabric

LIMIT_MS: Final = 60_000  # a reset takes ten seconds, of all GPUs of an NVSwitch board thirty
BACK_MS_MAX: Final = 120_000  # agent facts, 4.3: for the fabric to be complete again
_LOOK_EVERY_MS: Final = 2_000  # a reading takes a second

Run = Callable[[str], Awaitable[None]]
"""Runs the helper for one GPU, by UUID; raises BindError where it did not work."""


async def by_systemd(gpu: str) -> None:
    """Run `muster-reset@<uuid>.service` to its end.

    Raises:
        BindError: It is not installed, or it failed.
    """
    arguments = ("systemctl", "start", f"muster-reset@{gpu}.service")
    try:
        ended = await asyncio.to_thread(commands.run, arguments, LIMIT_MS)
    except OSError as error:
        raise BindError(f"resetFailed: {arguments[0]} cannot be started: {error.strerror}") from error
    if ended.trouble:
        raise BindError(f"resetFailed: {gpu} {ended.trouble}")


class Quietened:
    """A `GpuDriver` that can be kept off the GPUs for a while: whoever reads meanwhile gets the last reading again.

    It answers at once, so that health rounds and the watchdog go on while a reset takes its minutes.
    """

    def __init__(self, gpus: GpuDriver) -> None:
        self._gpus = gpus
        self._reading = asyncio.Lock()
        self._last = NodeReading("error", message="the GPUs have not been read yet")
        self._is_quiet = False

    async def read(self) -> NodeReading:
        """Read all GPUs, or repeat the last reading."""
        if self._is_quiet:
            return self._last
        async with self._reading:
            self._last = await self._gpus.read()
        return self._last

    def events(self) -> AsyncIterator[GpuEvent]:
        """Yield faults as they happen."""
        return self._gpus.events()

    async def let_go(self) -> bool:
        """Leave the GPUs alone until the next reading."""
        return await self._gpus.let_go()

    async def close(self) -> None:
        """Let go of the GPUs."""
        await self._gpus.close()

    @asynccontextmanager
    async def quiet(self) -> AsyncGenerator[GpuDriver]:
        """Give the driver to one user alone, once a reading that is under way has ended."""
        self._is_quiet = True
        try:
            async with self._reading:
                yield self._gpus
        finally:
            self._is_quiet = False


class Resetting:
    """Resets GPUs.

    Args:
        gpus: The driver that holds NVML.
        note: Told which GPUs were away and are back; their holds end by the next readings.
        clock: Counts deadlines.
        run: Resets one GPU.
    """

    def __init__(
        self, gpus: Quietened, note: Callable[[tuple[str, ...]], None], clock: Clock, run: Run = by_systemd
    ) -> None:
        self._gpus = gpus
        self._note = note
        self._clock = clock
        self._run = run

    async def reset(self, gpus: tuple[str, ...]) -> None:
        """Reset them and see each answer under its UUID, on the fabric where it was on one.

        Raises:
            BindError: NVML cannot be let go of, the helper failed, or one did not come back.
        """
        async with self._gpus.quiet() as driver:
            before = _domains(await driver.read())
            if not await driver.let_go():
                raise BindError("resetFailed: a call into NVML hangs, and holds the GPUs")
            for gpu in gpus:
                await self._run(gpu)
            until_boot_ms = self._clock.boot_ms() + BACK_MS_MAX
            while missing := [gpu for gpu in gpus if not _is_back(gpu, before, await driver.read())]:
                if self._clock.boot_ms() >= until_boot_ms:
                    raise BindError(f"resetFailed: {missing[0]} has not come back as it was")
                await self._clock.sleep(_LOOK_EVERY_MS)
            self._note(gpus)


def _domains(reading: NodeReading) -> dict[str, Fabric]:
    return {gpu.uuid: gpu.fabric for gpu in reading.gpus if gpu.uuid and gpu.fabric and gpu.fabric.state == "completed"}


def _is_back(uuid: str, before: dict[str, Fabric], reading: NodeReading) -> bool:
    gpu = next((gpu for gpu in reading.gpus if gpu.uuid == uuid), None)
    return gpu is not None and not gpu.lost and not gpu.recovery_action and _has_joined(gpu, before.get(uuid))


def _has_joined(gpu: GpuReading, before: Fabric | None) -> bool:
    """Tell whether a GPU is where it was on the fabric. One that was on its way to none before may be on any."""
    if gpu.fabric is None or gpu.fabric.state == "notSupported":
        return before is None
    is_same = before is None or (before.cluster, before.clique) == (gpu.fabric.cluster, gpu.fabric.clique)
    return gpu.fabric.state == "completed" and is_same
