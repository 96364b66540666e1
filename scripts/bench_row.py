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
    unit: str  # `per s` and `% kept`: higher is better; anything else: lower is
    target: float
    baseline: float

    @property
    def ok(self) -> bool:
        """Is the target met?"""
        return self.value >= self.target if self.unit in {"per s", "% kept"} else self.value <= self.target

    def document(self) -> dict[str, Any]:
        """Return the row as programs read it."""
        row = asdict(self)
        baseline = row.pop("baseline")
        return {**row, "ok": self.ok, "baseline": baseline}


def times_of(measured: Callable[[A], object], arguments: Iterable[A], clock: Callable[[], float]) -> list[float]:
    """Return the times of single calls, in seconds, shortest first, each with another argument.

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
    return sorted(times)


def median_ms(measured: Callable[[A], object], arguments: Iterable[A], clock: Callable[[], float]) -> float:
    """Return the median time of one call, in milliseconds. Arguments as of `times_of`."""
    return in_ms(median(times_of(measured, arguments, clock)))


def p99_ms(measured: Callable[[A], object], arguments: Iterable[A], clock: Callable[[], float]) -> float:
    """Return the time that 99 of 100 calls stay below, in milliseconds. Arguments as of `times_of`."""
    times = times_of(measured, arguments, clock)
    return in_ms(times[(len(times) * 99 - 1) // 100])


def in_ms(seconds: float) -> float:
    """Return seconds as milliseconds, to the microsecond."""
    return round(seconds * 1_000, 3)
