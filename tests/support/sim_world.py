"""The whole simulated system: two coordinators on one database, twelve hosts, tenants, faults, and the verdict."""

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import structlog
from sqlalchemy import Connection

from muster_coordinator.core.placement.pipeline import Plan
from muster_coordinator.service.admit import decide
from muster_coordinator.service.nodes import join, operate
from muster_coordinator.store import read
from muster_shared.wire import Registration
from tests.support.invariants import check
from tests.support.sim_book import Book
from tests.support.sim_coordinator import SimClock, SimCoordinator
from tests.support.sim_faults import Faults
from tests.support.sim_hardware import Hardware
from tests.support.sim_host import SimHost
from tests.support.sim_kernel import START_MS, Kernel
from tests.support.sim_network import Network
from tests.support.sim_tenants import Tenants
from tests.support.truth import Truth

MINUTE_MS = 60_000
DOMAINS = ("fabric.1", "fabric.2", "fabric.3")
HOSTS_EACH = 4
GPUS_EACH = 4
QUIET_MS = 8 * MINUTE_MS  # every time-out of the policy below, one after the other
LOOK_MS = 40_000  # between two looks at what is undone: longer than a retry interval
POLICY = {
    "bind_timeout_ms": 40_000,
    "unbind_timeout_ms": 40_000,
    "reconnect_grace_ms": 30_000,
    "heartbeat_ms": 25_000,
    "unreachable_after_beats": 2,
    "silence_repair_after_ms": 45_000,
    "retry_interval_ms": 20_000,
    "repair_lead_ms": 90_000,
    "repair_horizon_ms": 300_000,
    "grant_ms": 60_000,
}
"""Minutes instead of hours, so that a run of minutes sees every time-out several times."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one run."""

    seed: int
    violations: tuple[str, ...]
    seen: Counter[str]
    digest: str  # of everything that happened
    story: tuple[str, ...] = field(repr=False, default=())  # of what the first violation is about

    @property
    def text(self) -> str:
        """Return what a person needs to look into a failure."""
        lines = [f"seed {self.seed}: {violation}" for violation in self.violations[:3]]
        return "\n".join([*lines, *self.story, f"again: python -m tests.sim --seed {self.seed}"])


class SimWorld:
    """One run.

    Args:
        seed: Every choice follows from it.
        folder: For the database.
        without: Kinds of faults to leave out.
        tenant_pause_ms: Between two calls of tenants, on average.
        fault_pause_ms: Between two faults, on average.
    """

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        without: frozenset[str] = frozenset(),
        tenant_pause_ms: int = 9_000,
        fault_pause_ms: int = 8_000,
    ) -> None:
        self.kernel = Kernel(seed)
        self.truth = Truth()
        self.book = Book(self.kernel, folder, self.truth)
        self.network = Network(self.kernel)
        self._clock = SimClock(self.kernel, self.kernel.chance("world"))
        chance = self.kernel.chance("policy")
        policy = {**POLICY, "turnaround_ms": chance.choice((0, 0, 15_000)), "top_n": chance.choice((1, 3))}
        self.hosts = [self._host(number) for number in range(len(DOMAINS) * HOSTS_EACH)]
        with self.book.engine.begin() as connection:
            operate.prepare(connection, self._clock.moment(), "default", policy)
            for host in self.hosts:
                registration = Registration(name=host.name, machine_id=f"machine-{host.name}", agent_version="sim")
                host.credential = join.register(
                    connection, self._clock.moment(), registration, self._clock.new_secret()
                )
        self.book.on_begin = self._begins
        self.coordinators = [SimCoordinator(self.kernel, self.book, name) for name in ("c1", "c2")]
        self.book.on_rev = self._revs_rose
        for host in self.hosts:
            host.coordinators = self.coordinators
            host.power_on()
        self.tenants = Tenants(self.kernel, self.network, self.coordinators, tenant_pause_ms)
        self.faults = Faults(self.kernel, self.network, self.coordinators, self.hosts, fault_pause_ms, without)

    def _host(self, number: int) -> SimHost:
        name = f"n{number:02}"
        gpus = tuple(f"GPU-{name}-{gpu}" for gpu in range(GPUS_EACH))
        home = DOMAINS[number // HOSTS_EACH]
        hardware = Hardware(gpus, home, home)
        return SimHost(self.kernel, self.network, self.truth, name, hardware)

    def _begins(self) -> None:
        for coordinator in self.coordinators:
            if coordinator.owns(self.kernel.task):
                coordinator.at_begin()

    def _revs_rose(self) -> None:
        for coordinator in self.coordinators:
            coordinator.revs_rose()

    def run(self, minutes: int) -> None:
        """Let chaos reign for so long, then mend everything and see the system come to rest."""
        self.kernel.run(START_MS + minutes * MINUTE_MS)
        self.faults.mend()
        if not self.kernel.violations:
            self._come_to_rest()

    def _come_to_rest(self) -> None:
        """See that nothing stays undone: what is found at each look for `QUIET_MS` is stuck."""
        until_ms = self.kernel.now_ms + QUIET_MS
        stuck: set[str] | None = None
        while not self.kernel.violations and stuck != set() and self.kernel.now_ms < until_ms:
            self.kernel.run(self.kernel.now_ms + LOOK_MS)
            found = set(self._inside(self._unrest))
            stuck = found if stuck is None else stuck & found
        self.kernel.violations += sorted(stuck or ())
        self.kernel.violations += self._inside(lambda connection: check(connection, self.kernel.now_ms, self.truth))

    def _inside(self, body: Callable[[Connection], Any]) -> Any:
        with self.book.engine.begin() as connection:
            return body(connection)

    def _unrest(self, connection: Connection) -> Iterator[str]:
        """Yield what should not be so any more, in words that stay the same while it is."""
        return iter([*self._late(connection), *self._placeable(connection)])

    def _late(self, connection: Connection) -> Iterator[str]:
        now_ms = self.kernel.now_ms
        rows = connection.exec_driver_sql("SELECT id, state, start_ms, start_ms + duration_ms FROM reservation")
        for reservation_id, state, start_ms, end_ms in rows:
            if state in {"binding", "ending"}:
                yield f"I21 {reservation_id} stays {state}"
            elif (state == "placed" and start_ms < now_ms) or (state == "active" and end_ms < now_ms):
                yield f"I21 {reservation_id} stays {state} past its time"
        for row in connection.exec_driver_sql("SELECT id FROM allocation WHERE bind_state = 'unbinding'"):
            yield f"I22 {row[0]} stays unbinding"
        for name, rev, applied_rev in connection.exec_driver_sql("SELECT name, rev, applied_rev FROM node"):
            if rev != applied_rev:
                yield f"I22 {name} has not taken its desired state over"

    def _placeable(self, connection: Connection) -> Iterator[str]:
        at = self._clock.moment()
        for pool_row in read.pools(connection):
            snapshot = read.snapshot(connection, pool_row, at.ms)
            pending = connection.exec_driver_sql("SELECT id FROM reservation WHERE state = 'pending' ORDER BY id")
            for (reservation_id,) in pending.all():
                found = read.reservation(connection, reservation_id)
                assert found is not None
                if isinstance(decide(snapshot, found[0], at, pool_row), Plan):
                    yield f"I22 {reservation_id} fits and stays pending"

    def outcome(self) -> Outcome:
        """Return what came of it."""
        history = hashlib.sha256()
        with self.book.engine.connect() as connection:
            seen = Counter(self.kernel.seen)
            seen["replacedInBinding"] = self.book.watch.story.told["reservation.repaired", "binding"]
            events = connection.exec_driver_sql("SELECT type, at_ms, subject, version, data FROM event ORDER BY number")
            for row in events:
                history.update(repr(tuple(row)).encode())
                seen[row[0]] += 1
            for state, reason, count in connection.exec_driver_sql(
                "SELECT bind_state, bind_reason, count(*) FROM allocation GROUP BY 1, 2"
            ):
                seen[f"{state} {(reason or '').split(':')[0]}".strip()] += count
            violations = tuple(dict.fromkeys(self.kernel.violations))
            story = tuple(_story(connection, violations[0])) if violations else ()
        for exposure in self.truth.all():
            history.update(f"{exposure.allocation_id} {exposure.from_ms} {exposure.to_ms}".encode())
        return Outcome(self.kernel.seed, violations, seen, history.hexdigest(), story)

    def close(self) -> None:
        """Give everything back."""
        for coordinator in self.coordinators:
            coordinator.stop()
        self.book.engine.dispose()


def simulated(seed: int, minutes: int, **choices: Any) -> Outcome:
    """Run one seed in a folder of its own."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # nobody reads it
    try:
        with TemporaryDirectory() as folder:
            world = SimWorld(seed, Path(folder), **choices)
            try:
                world.run(minutes)
                return world.outcome()
            finally:
                world.close()
    finally:
        structlog.configure(**before)


def _story(connection: Connection, violation: str) -> Iterator[str]:
    """Tell the events of the reservations that a sentence names, itself or by their allocations."""
    words = set(re.findall(r"\b(?:rsv|alloc)_\w+", violation))
    ids = {word for word in words if word.startswith("rsv_")}
    for allocation_id in sorted(word for word in words if word.startswith("alloc_")):
        found = connection.exec_driver_sql(f"SELECT * FROM allocation WHERE id = '{allocation_id}'").mappings().first()
        if found is not None:
            ids.add(found["reservation_id"])
            yield f"  {dict(found)}"
    for reservation_id in sorted(ids):
        yield f"  {reservation_id}"
        rows = connection.exec_driver_sql(
            f"SELECT at_ms, version, type, data FROM event WHERE subject = '{reservation_id}' ORDER BY version"
        )
        for at_ms, version, kind, told in rows:
            yield f"    {(at_ms - START_MS) / 1_000:9.3f} s  {version:3}  {kind}  {told}"
