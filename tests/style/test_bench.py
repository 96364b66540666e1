"""`scripts/bench` says what programs can read, measures real pools, and tells a met target from a missed one."""

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Entry, Grouping, Request, Shape
from muster_coordinator.core.placement.pipeline import Plan, plan
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.store import read
from muster_coordinator.store.engine import prepared
from muster_shared.time import Window
from muster_shared.wire import FABRIC_DOMAIN
from scripts import bench_main
from scripts.bench_pool import NOW_MS, SHIFT_MS, fill, nodes, shifts
from scripts.bench_row import Row, median_ms, p99_ms
from scripts.bench_sweep import naive_gang

MET = Row("canned", "wait_ms", 1.5, "ms", 2.0, 9.0)
MISSED = Row("canned", "rate_per_s", 1.5, "per s", 2.0, 9.0)


def canned(progress: Callable[[str], None]) -> Iterator[Row]:
    progress("measuring nothing")
    yield MET
    yield MISSED


@pytest.fixture(autouse=True)
def _canned_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_main, "GROUPS", {"canned": canned})


def test_json_is_one_row_a_line_and_nothing_else_on_standard_output() -> None:
    done = CliRunner().invoke(bench_main.main, ["--json"])

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(line) for line in lines] == [["group", "name", "value", "unit", "target", "ok", "baseline"]] * 2
    assert [line["ok"] for line in lines] == [True, False]
    assert done.stderr == "bench: measuring nothing\n"


def test_the_table_for_people_says_what_was_missed() -> None:
    done = CliRunner().invoke(bench_main.main, [])

    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["ok", "yes", "NO"]


def test_a_group_that_does_not_exist_is_refused_with_those_that_do() -> None:
    done = CliRunner().invoke(bench_main.main, ["--only", "speed"])

    assert done.exit_code == 2
    assert "placement" in done.stderr


def test_the_median_is_taken_of_single_calls() -> None:
    ticks = iter([0.0, 0.001, 1.0, 1.002, 2.0, 2.9])

    assert median_ms(lambda _: None, range(3), lambda: next(ticks)) == pytest.approx(2.0)


def test_the_99th_of_a_hundred_is_the_last_but_one_of_a_hundred_calls() -> None:
    ticks = iter([moment for call in range(100) for moment in (0.0, (call + 1) / 1_000)])

    assert p99_ms(lambda _: None, range(100), lambda: next(ticks)) == 99.0


def test_a_pool_to_measure_has_the_bookings_that_its_name_says_and_none_overlap() -> None:
    pool = nodes(60, 300)

    assert sum(len(node.booked) for node in pool) == 300
    assert all(
        one.end_ms <= two.start_ms for node in pool for one, two in zip(node.booked, node.booked[1:], strict=False)
    )


def test_the_pool_in_the_database_is_the_pool_in_memory() -> None:
    pool, engine = nodes(20, 60), prepared(create_engine("sqlite://"))
    with engine.begin() as connection:
        fill(connection, Moment(NOW_MS), pool)
        stored = read.snapshot(connection, read.pools(connection)[0], NOW_MS)
    engine.dispose()

    assert [view.node for view in stored.views.values()] == pool


def test_the_baseline_finds_a_gang_exactly_where_the_planner_does() -> None:
    pool = nodes(60, 300)
    starts = range(NOW_MS, NOW_MS + shifts(pool) * SHIFT_MS, SHIFT_MS // 2)
    shape, grouping = Shape((Entry("gpu", 8),)), Grouping((FABRIC_DOMAIN,))
    asked = [Request(shape, 12, grouping, Window(start, start + SHIFT_MS)) for start in starts]
    snapshot = Snapshot.of("pool", 1, pool)

    planned = [isinstance(plan(snapshot, request), Plan) for request in asked]

    assert planned == [naive_gang(pool, request) is not None for request in asked]
    assert set(planned) == {True, False}
