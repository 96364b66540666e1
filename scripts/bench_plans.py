"""Plans in memory: how long a decision takes in pools of 1,000 to 10,008 nodes, and what the index weighs."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Entry, Grouping, Node, Policy, Request, Reservation, Shape, State
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service.capacity.preview import previewed
from muster_coordinator.store.read import PoolRow
from muster_shared.time import Window
from muster_shared.wire import FABRIC_DOMAIN
from scripts.bench_pool import DOMAIN_NODES, HOUR_MS, NOW_MS, SHIFT_MS, nodes, shifts
from scripts.bench_row import Row, median_ms, p99_ms
from scripts.bench_sweep import naive_gang

# Source of sizes and targets: the pools and figures that the project has promised.
_GANG: Final = 16
_TOO_MANY: Final = DOMAIN_NODES + 1  # one more than any fabric has
_PLANS: Final = 200  # enough for a 99th of a hundred
_SWEEPS: Final = 5  # of the baseline: each takes a second in the largest pool
_PREVIEWS: Final = 100
_MEDIUM: Final = (2_016, 20_000)  # nodes and bookings
_LARGE: Final = (10_008, 200_000)
_MIB: Final = 1 << 20


def rows(group: str, progress: Callable[[str], None]) -> Iterator[Row]:
    """Measure plans, the index and previews."""
    progress("a pool of 1,000 nodes with 10,000 bookings")
    pool = nodes(1_000, 10_000)
    asked = requests(pool, _GANG)
    snapshot = Snapshot.of("pool", 1, pool)
    for request in asked[:20]:  # both find a gang, or neither
        assert isinstance(plan(snapshot, request), Plan) == (naive_gang(pool, request) is not None)
    value = median_ms(lambda request: plan(snapshot, request), asked, time.thread_time)
    yield Row(group, "plan_gang16_1000n_ms", value, "ms", 10.0, _sweep_ms(pool, asked))

    progress("a pool of {:,} nodes with {:,} bookings".format(*_MEDIUM))
    pool = nodes(*_MEDIUM)
    snapshot = Snapshot.of("pool", 1, pool)
    yield _plans(group, "plan_gang16_2016n_p99_ms", pool, snapshot, _GANG, 5.0)
    yield _previews(group, pool, snapshot)

    progress("a pool of {:,} nodes with {:,} bookings".format(*_LARGE))
    before_mib = _resident_mib()
    pool = nodes(*_LARGE)
    values_mib = _resident_mib() - before_mib
    snapshot = Snapshot.of("pool", 1, pool)
    plan(snapshot, requests(pool, _GANG)[0])
    index_mib = round(_resident_mib() - before_mib, 1)
    yield Row(group, "index_10008n_mib", index_mib, "MiB", 500.0, round(values_mib, 1))
    yield _plans(group, "plan_gang16_10008n_p99_ms", pool, snapshot, _GANG, 25.0)
    yield _plans(group, "nofit_gang16_10008n_p99_ms", pool, snapshot, _TOO_MANY, 25.0)


def requests(pool: list[Node], size: int) -> list[Request]:
    """Return requests whose windows cut the shifts of the pool, each at another instant."""
    count = shifts(pool)
    starts = (NOW_MS + number % count * SHIFT_MS + 6 * HOUR_MS - number * 1_000 for number in range(_PLANS))
    shape = Shape((Entry("gpu", 8, "nvlink-all"),))
    return [Request(shape, size, Grouping((FABRIC_DOMAIN,)), Window(start, start + SHIFT_MS)) for start in starts]


def _plans(group: str, name: str, pool: list[Node], snapshot: Snapshot, size: int, target_ms: float) -> Row:
    asked = requests(pool, size)
    plan(snapshot, asked[0])  # what is worked out once for a pool is worked out here
    gc.collect()
    gc.freeze()  # as a coordinator that has been up for a while: its index is not walked again and again
    value = p99_ms(lambda request: plan(snapshot, request), asked, time.thread_time)
    gc.unfreeze()
    return Row(group, name, value, "ms", target_ms, _sweep_ms(pool, asked))


def _sweep_ms(pool: list[Node], asked: list[Request]) -> float:
    return median_ms(lambda request: naive_gang(pool, request), asked[:_SWEEPS], time.thread_time)


def _previews(group: str, pool: list[Node], snapshot: Snapshot) -> Row:
    """Refused and granted previews with all their alternatives. Baseline: a day of starts, swept hour by hour."""
    pool_row = PoolRow("pool", "default", 1, 0, Policy(), 0, 0)
    asked = [
        _reservation(request, size) for size in (_TOO_MANY, _GANG, DOMAIN_NODES) for request in requests(pool, size)
    ][:: 3 * _PLANS // _PREVIEWS]

    def preview(reservation: Reservation) -> object:
        return previewed(snapshot, reservation, Moment(NOW_MS, Random(1)), pool_row)  # noqa: S311 - ties of a bench

    preview(asked[0])
    gc.collect()
    gc.freeze()
    value = p99_ms(preview, asked, time.thread_time)
    gc.unfreeze()
    day = [Window(NOW_MS + hour * HOUR_MS, NOW_MS + hour * HOUR_MS + SHIFT_MS) for hour in range(24)]
    swept = [Request(asked[0].shape, _TOO_MANY, asked[0].grouping, window) for window in day]
    baseline = median_ms(lambda request: naive_gang(pool, request), swept[:_SWEEPS], time.thread_time) * len(day)
    return Row(group, "preview_2016n_p99_ms", value, "ms", 50.0, round(baseline, 1))


def _reservation(request: Request, size: int) -> Reservation:
    return Reservation(
        id="",
        tenant_id="bench",
        pool_id="pool",
        state=State.PENDING,
        shape=request.shape,
        size=size,
        grouping=request.grouping,
        start_ms=request.window.start_ms,
        duration_ms=request.window.duration_ms,
        fixed_end_ms=None,
        latest_start_ms=None,
        generation=0,
    )


def _resident_mib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB
