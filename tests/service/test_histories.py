"""Any history of requests, reports, faults and time: never a double booking, never a partial gang.

After each act the pools in memory are what the database holds.
"""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule, run_state_machine_as_test
from sqlalchemy import Connection

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Entry, Grouping, Node, Request, Shape
from muster_coordinator.core.placement.pipeline import plan
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service.bodies import DeviceRequest, GangRequest
from muster_coordinator.service.changes.bodies import ShrinkRequest
from muster_coordinator.service.changes.shrink import shrink
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.maintenance import declare as maintenance
from muster_coordinator.service.nodes import operate
from muster_coordinator.service.repairs.bodies import RepairRequest
from muster_coordinator.service.repairs.mend import repair_now
from muster_coordinator.service.series import create as series
from muster_coordinator.store import read
from muster_shared.errors import Problem
from muster_shared.time import Window
from muster_shared.wire import FABRIC_DOMAIN
from tests.support.coordinator_agent import ScriptedAgent
from tests.support.extending import extended
from tests.support.invariants import Watch
from tests.support.series_world import comes, created
from tests.support.service_world import MINUTE, SECOND, World, asks, world_on
from tests.support.upkeep_world import declare, id_of

R = TypeVar("R")

NODES = {"a1": "fabric-a.1", "a2": "fabric-a.1", "b1": "fabric-b.1", "b2": "fabric-b.1"}
EXAMPLES = {"sqlite": 12, "postgresql": 4}  # histories; the simulation runs the long ones
STEPS = 50  # enough for a gang to be asked for, bound, disturbed and ended

nodes = st.sampled_from(sorted(NODES))
faults = st.sampled_from(["mute", "hold", "rewire", "reboot", "cordon", "mend", "mend"])


def differing(connection: Connection, index: PoolIndex, at: Moment) -> list[str]:
    """Return what an index knows otherwise than the database: nodes, and plans that are made on it."""
    (pool_row,) = read.pools(connection)
    known = index.snapshot(connection, pool_row, at)
    stored = read.snapshot(connection, pool_row, at.ms)
    names = known.views.keys() | stored.views.keys()
    wrong = [name for name in sorted(names) if _node(known, name) != _node(stored, name)]
    for size, start_ms in ((1, at.ms), (2, at.ms), (2, at.ms + 5 * MINUTE), (1, at.ms + 30 * MINUTE)):
        keys = (FABRIC_DOMAIN,) if size > 1 else ()
        asked = Request(Shape((Entry("gpu", 1),)), size, Grouping(keys), Window(start_ms, start_ms + 10 * MINUTE))
        if plan(known, asked) != plan(stored, asked):
            wrong.append(f"a plan for {asked}")
    return wrong


def _node(snapshot: Snapshot, node_id: str) -> Node | None:
    view = snapshot.views.get(node_id)
    return None if view is None else view.node


class Histories(RuleBasedStateMachine):
    """Whoever asks, reports, breaks, mends or waits does so in any order; each act is judged."""

    engine: str
    fresh_url: Callable[[], str]  # of a migrated, empty database; set by the test
    reservations: Bundle[str] = Bundle("reservations")
    windows: Bundle[str] = Bundle("windows")  # of maintenance
    all_series: Bundle[str] = Bundle("all_series")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.watch = Watch()

    def run(self, act: Coroutine[Any, Any, R]) -> R:
        """Act, then judge what is stored, and what is known of it."""
        answer = self.runner.run(act)
        faults = self.runner.run(self.world.coordinator.database.read(self.watch.check, self.world.now_ms))
        assert not faults, faults
        self.compare(self.world.coordinator.index)
        return answer

    def compare(self, index: PoolIndex) -> None:
        """Judge what an index knows by what is stored."""
        at = self.world.clock.moment()
        wrong = self.runner.run(self.world.coordinator.database.read(differing, index, at))
        assert not wrong, wrong

    def agent(self, name: str) -> ScriptedAgent:
        return self.world.agents[name]

    @initialize()
    def open(self) -> None:
        async def opened() -> World:
            world = await self.stack.enter_async_context(world_on(type(self).fresh_url()))
            for name, fabric in NODES.items():
                await world.join(name, fabric=fabric, gpus=2)
            return world

        self.world = self.runner.run(opened())
        self.seldom = PoolIndex()  # of a replica that nobody asks for long

    @rule(
        target=reservations,
        size=st.integers(1, 3),
        gpus=st.integers(1, 2),
        start_m=st.sampled_from([0, 0, 0, 5, 30]),
        length_m=st.sampled_from([1, 10, 60, 60]),
        loss=st.sampled_from(["notify", "replace", "release"]),
    )
    def reserve(self, size: int, gpus: int, start_m: int, length_m: int, loss: str) -> Any:
        start = f"+{start_m}m" if start_m else None
        request = asks(size, gpus=gpus, start=start, duration=f"{length_m}m", on_member_loss=loss)
        made = self.run(self.world.reserve(request))
        return multiple(made.id)

    @rule(reservation=reservations, verb=st.sampled_from(["cancel", "release"]))
    def end(self, reservation: str, verb: str) -> None:
        async def ended() -> None:
            with suppress(Problem):  # too early, or too late
                await getattr(self.world.coordinator, verb)(reservation)

        self.run(ended())

    @rule(reservation=reservations, by_m=st.sampled_from([1, 5, 30]))
    def extend(self, reservation: str, by_m: int) -> None:
        self.run(self.tried(extended(self.world, reservation, by=f"{by_m}m")))

    @rule(reservation=reservations, size=st.integers(1, 2))
    def shrink(self, reservation: str, size: int) -> None:
        coordinator = self.world.coordinator
        request = ShrinkRequest(to=size)
        self.run(self.tried(coordinator.write(shrink, reservation, request, coordinator.index)))

    @rule(reservation=reservations, avoid=nodes)
    def repair(self, reservation: str, avoid: str) -> None:
        coordinator = self.world.coordinator
        request = RepairRequest(avoid=[avoid])
        self.run(self.tried(coordinator.write(repair_now, reservation, request, coordinator.index)))

    @rule(target=windows, name=nodes, start_m=st.sampled_from([0, 5, 30]))
    def mend(self, name: str, start_m: int) -> Any:
        start = f"+{start_m}m" if start_m else None
        view = self.run(self.tried(declare(self.world, name, start=start, duration="15m")))
        return multiple(*([] if view is None else [id_of(view)]))

    @rule(window=windows, verb=st.sampled_from([maintenance.cancel, maintenance.end]))
    def stop_mending(self, window: str, verb: Callable[..., tuple[str, ...]]) -> None:
        async def stopped() -> None:
            await self.world.coordinator.services.advance_all(await self.world.coordinator.write(verb, window))

        self.run(self.tried(stopped()))

    @rule(target=all_series, size=st.integers(1, 2))
    def repeat(self, size: int) -> Any:
        rule_of_two = comes(
            "FREQ=HOURLY;COUNT=2",
            devices=[DeviceRequest(count=1)],
            gang=GangRequest(size=size, topology_key=FABRIC_DOMAIN),
            at="08:10",
            duration="20m",
        )
        view = self.run(self.tried(created(self.world, rule_of_two)))
        return multiple(*([] if view is None else [view.id]))

    @rule(one=all_series)
    def end_series(self, one: str) -> None:
        self.run(self.tried(self.world.coordinator.write(series.cancel, one, None)))

    @rule(name=nodes)
    def drain(self, name: str) -> None:
        self.run(self.world.coordinator.operate(operate.set_intent, self.agent(name).node_id, "draining", None))

    async def tried(self, act: Coroutine[Any, Any, R]) -> R | None:
        """Act, unless it is refused, in which case nothing has changed."""
        before = await self.world.rows()
        try:
            return await act
        except Problem:
            assert await self.world.rows() == before
            return None

    @rule(name=nodes)
    def turn(self, name: str) -> None:
        self.run(self.agent(name).turn())

    @rule()
    def beat(self) -> None:
        self.run(self.world.beat())

    @rule()
    def look_after_long(self) -> None:
        self.compare(self.seldom)

    @rule(name=nodes, late=st.integers(1, 5))
    def report_late(self, name: str, late: int) -> None:
        agent = self.agent(name)
        sent = agent.next_report(assignments=[])
        stale = sent.model_copy(update={"seq": max(0, sent.seq - late)})
        if stale.seq < sent.seq - 1:  # the newest one was a report, so this is an older one
            self.run(self.world.coordinator.take_report(agent.node_id, stale))

    @rule(name=nodes, fault=faults, number=st.integers(0, 1))
    def disturb(self, name: str, fault: str, number: int) -> None:
        agent = self.agent(name)
        match fault:
            case "mute":
                agent.confirms = agent.lets_go = number == 1
            case "hold" if not agent.holds:
                agent.hold(number)
            case "rewire":
                agent.fabric = sorted(NODES.values())[number * 2] if number else None
            case "reboot":
                agent.reboot()
            case "cordon":
                self.run(self.world.uncordon(agent) if number else self.world.cordon(agent))
            case _:  # everything is well again
                agent.holds.clear()
                agent.fabric = NODES[name]
                agent.confirms = agent.lets_go = True
        self.run(agent.report())

    @rule(
        ms=st.sampled_from([1, 20 * SECOND, 2 * MINUTE, 10 * MINUTE]),
        how=st.sampled_from(["silent", "heard", "heard", "restart"]),
    )
    def tick(self, ms: int, how: str) -> None:
        self.world.clock.ms += ms
        self.compare(self.world.coordinator.index)  # before anybody writes that an end has passed
        if how == "restart":
            self.run(self.world.restart())
        if how == "heard":
            self.run(self.world.beat())
        self.run(self.world.coordinator.passes.run_once())

    def teardown(self) -> None:
        try:
            self.runner.run(self.stack.aclose())
        finally:
            self.runner.close()


@pytest.fixture(params=EXAMPLES)
def histories(request: pytest.FixtureRequest, tmp_path: Path) -> type[Histories]:
    """The machine on fresh databases of one engine."""
    made = 0

    def sqlite() -> str:
        nonlocal made
        made += 1
        path = tmp_path / f"{made}.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        return f"sqlite:///{path}"

    def postgresql() -> str:
        cluster = request.getfixturevalue("postgres_cluster")
        name = cluster.create(request.getfixturevalue("postgres_template"))
        request.addfinalizer(lambda: cluster.drop(name))
        return str(cluster.url(name))

    fresh = sqlite if request.param == "sqlite" else postgresql
    return type("HistoriesOf", (Histories,), {"fresh_url": staticmethod(fresh), "engine": request.param})


def test_no_history_books_an_atom_twice_or_a_gang_in_part(histories: type[Histories]) -> None:
    run_state_machine_as_test(
        histories,
        settings=settings(
            max_examples=EXAMPLES[histories.engine],
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
