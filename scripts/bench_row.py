"""What a benchmark says: one row for each figure, and how a figure is taken."""

import gc
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, TypeVar

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside its target, and beside what the obvious way costs on the same machine in the same run."""

    group: str
    name: str
    value: float
    unit: str  # `ms`: lower is better; `per s`: higher is
    target: float
    baseline: float

    @property
    def ok(self) -> bool:
        """Is the target met?"""
        return self.value <= self.target if self.unit == "ms" else self.value >= self.target

    def document(self) -> dict[str, Any]:
        """Return the row as programs read it."""
        row = asdict(self)
        baseline = row.pop("baseline")
        return {**row, "ok": self.ok, "baseline": baseline}


def median_ms(measured: Callable[[A], object], arguments: Iterable[A], clock: Callable[[], float]) -> float:
    """Return the median time of one call, in milliseconds, each with another argument.

    Args:
        measured: What is called.
        arguments: One for each call.
        clock: `time.thread_time` for what only computes: other programs on the machine do not count;
            `time.perf_counter` for what waits, such as for a disk.
    """
    times: list[float] = []
    gc.collect()
    for argument in arguments:
        begun = clock()
        measured(argument)
        times.append(clock() - begun)
    return in_ms(median(times))


def in_ms(seconds: float) -> float:
    """Return seconds as milliseconds, to the microsecond."""
    return round(seconds * 1_000, 3)
