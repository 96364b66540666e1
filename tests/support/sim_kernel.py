"""One thread, one virtual clock: what happens next is a heap of acts and one seed."""

import heapq
from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import NoReturn

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]  # it ships no types

START_MS = 1_800_000_000_000


class Kernel:
    """Time, order and chance of one run, and what the run has seen.

    Args:
        seed: Every choice of the run follows from it.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_ms = START_MS
        self.seen: Counter[str] = Counter()  # how often each thing worth seeing came about
        self.violations: list[str] = []
        self.task: Task | None = None  # whose turn it is
        self.calm = False  # once true nothing goes wrong any more
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def chance(self, name: str) -> Random:
        """Return a stream of chance of its own: one part drawing more leaves the others as they were."""
        return Random(f"{self.seed}:{name}")

    def after(self, ms: int, act: Callable[[], None]) -> None:
        """Do something `ms` milliseconds from now."""
        heapq.heappush(self._heap, (self.now_ms + ms, next(self._order), act))

    def run(self, until_ms: int) -> None:
        """Let time pass until then, or until something is violated."""
        while self._heap and self._heap[0][0] <= until_ms and not self.violations:
            self.now_ms, _, act = heapq.heappop(self._heap)
            act()
        if not self.violations:
            self.now_ms = until_ms


class Task:
    """Synchronous work that can be held up between its transactions, while others go on.

    Args:
        kernel: Whose time it spends.
        body: The work.
        may_run_ms: Asked when it would go on: 0 to run, -1 to die, else how long it has to wait.
    """

    def __init__(self, kernel: Kernel, body: Callable[[], None], may_run_ms: Callable[[], int]) -> None:
        self._kernel = kernel
        self._may_run_ms = may_run_ms
        self._greenlet = greenlet(body)
        self.is_flow = False  # between its transactions stands a plan that others may outdate

    @property
    def done(self) -> bool:
        """Has it ended, one way or the other?"""
        return bool(self._greenlet.dead)

    def go_on(self) -> None:
        """Run it until it is held up or ends."""
        wait_ms = self._may_run_ms()
        if wait_ms > 0:
            self._kernel.after(wait_ms, self.go_on)
        elif wait_ms < 0:
            self.end()
        elif not self.done:
            before, self._kernel.task = self._kernel.task, self
            self._greenlet.switch()
            self._kernel.task = before

    def pause(self, ms: int) -> None:
        """Hold the running task up for so long."""
        assert getcurrent() is self._greenlet
        self._kernel.after(ms, self.go_on)
        parent = self._greenlet.parent
        assert parent is not None
        parent.switch()

    def end(self) -> None:
        """Let it die where it stands: between two transactions."""
        if not self.done:
            self._greenlet.parent = getcurrent()
            self._greenlet.throw(GreenletExit)

    def end_here(self) -> NoReturn:
        """Let the running task die."""
        assert getcurrent() is self._greenlet
        raise GreenletExit
