"""The group `placement`: plans in memory, pending work, and creates from the call to the commit."""

from collections.abc import Callable, Iterator
from typing import Final

from scripts import bench_creates, bench_plans, bench_waiting
from scripts.bench_row import Row

GROUP: Final = "placement"


def rows(progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure the group: a few minutes, most of them for the largest pool."""
    for part in (bench_plans.rows, bench_waiting.rows, bench_creates.rows):
        yield from part(GROUP, progress)
