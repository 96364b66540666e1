"""A clock that moves only when a test says so."""

import asyncio
import heapq
import random
from itertools import count

_TURNS = 20  # loop turns that let woken tasks run on to their next wait


async def settle() -> None:
    """Let every task that can run go on until it waits for something."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class VirtualClock:
    """Both clocks start where told and advance together; `step_wall` moves the wall clock alone."""

    def __init__(self, unix_ms: int = 1_800_000_000_000, boot_ms: int = 600_000, seed: int = 0) -> None:
        self._unix_ms = unix_ms
        self._boot_ms = boot_ms
        self._chance = random.Random(seed)
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()

    def unix_ms(self) -> int:
        return self._unix_ms

    def boot_ms(self) -> int:
        return self._boot_ms

    def random(self) -> float:
        return self._chance.random()

    async def sleep(self, ms: int) -> None:
        if ms <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._boot_ms + ms, next(self._order), woken))
        await woken

    @property
    def sleeping(self) -> int:
        """How many tasks wait for this clock."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def step_wall(self, ms: int) -> None:
        """Move the wall clock alone, as an administrator or NTP would."""
        self._unix_ms += ms

    async def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass: each sleeper wakes at its own instant, in order."""
        end_ms = self._boot_ms + ms
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end_ms:
            due_ms, _, woken = heapq.heappop(self._sleepers)
            self._move_to(due_ms)
            if not woken.done():
                woken.set_result(None)
                await settle()
        self._move_to(end_ms)

    def _move_to(self, boot_ms: int) -> None:
        self._unix_ms += boot_ms - self._boot_ms
        self._boot_ms = boot_ms
