"""The port that wakes whoever waits for a change. Only a hint: everybody looks at stored state, and at intervals."""

import asyncio


class Notifier:
    """Counts beats; each committed change is one."""

    def __init__(self, also: "Notifier | None" = None) -> None:
        """Start at none.

        Args:
            also: Beats whenever this one does: who waits there must see these changes too.
        """
        self._also = also
        self._beats = 0
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def beats(self) -> int:
        """How many changes there were: remember it before looking, then wait for more."""
        return self._beats

    def beat(self) -> None:
        """Something was committed."""
        if self._also is not None:
            self._also.beat()
        self._beats += 1
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: int, timeout_s: float) -> None:
        """Return once there was a beat after `seen`, or after `timeout_s`."""
        if self._beats > seen:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)
