"""Each check sees a violation that is planted by hand, and none in what the services made; on both engines."""

import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Row, text

from muster_coordinator.clock import Moment
from muster_coordinator.service.admit import reserve
from muster_coordinator.service.advance import advance
from muster_coordinator.service.bodies import ReservationRequest
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.maintenance import declare as maintenance
from muster_coordinator.service.maintenance.bodies import MaintenanceRequest
from muster_coordinator.service.nodes import join, operate
from muster_coordinator.service.nodes.desired import desired
from muster_coordinator.service.nodes.report import report
from muster_coordinator.store import migrate
from muster_coordinator.store.engine import Database
from muster_shared.wire import AssignmentStatus, DesiredState, Gpu, Inventory, Monitoring, Registration, Report
from tests.support.invariants import Watch, check
from tests.support.truth import Exposure, Truth

START = 1_800_000_000_000
NOW = START + 5_000
NODES = ("a", "b", "c")


class Undone(Exception):  # noqa: N818 - how a transaction is left, not an error
    """Ends a transaction that must leave nothing behind, and carries out what was found in it."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(found)
        self.found = found


class Scene:
    """Three nodes of two GPUs in one fabric, an active gang of two and a booking for later on the third."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.index = PoolIndex()
        self.chance = random.Random(0)
        self.ids: dict[str, str] = {}

    def at(self, ms: int = 0) -> Moment:
        return Moment(START + ms, self.chance)

    async def build(self) -> None:
        await self.database.write(migrate.upgrade)
        await self.database.write(operate.prepare, self.at(), "default", {})
        for name in NODES:
            registration = Registration(name=name, machine_id=f"machine-{name}", agent_version="1")
            joined = await self.database.write(join.register, self.at(), registration, f"token-{name}")
            self.ids[name] = joined.node_id
            await self.told(name, 1, [])
        self.ids["gang"] = await self.reserved({"gang": {"size": 2, "topologyKey": "fabric.domain"}})
        self.ids["later"] = await self.reserved({"start": "+1h"})
        await self.database.write(advance, self.at(10), self.ids["gang"], self.index)
        for name in NODES:
            state = await self.database.write(desired, self.at(20), self.ids[name])
            await self.told(name, 2, [bound(state)] if state.assignments else [], state.rev)
        await self.database.write(advance, self.at(30), self.ids["gang"], self.index)

    async def reserved(self, more: dict[str, Any]) -> str:
        body = {"tenantId": "acme", "devices": [{"count": 2}], "duration": "30m", **more}
        return (
            await self.database.flow(reserve, self.at(), ReservationRequest.model_validate(body), self.index)
        ).reservation_id

    async def told(self, name: str, seq: int, statuses: list[AssignmentStatus], rev: int = 1) -> None:
        gpus = [Gpu(uuid=f"GPU-{name}-{n}", pci="0000:01:00", model="H100", memory_mib=80_000) for n in range(2)]
        labels = {"fabric.domain": "f.1"}
        inventory = Inventory(
            gpus=gpus,
            labels=labels,
            monitoring=Monitoring(nvml="ok", events="ok", kernel_log="ok"),
            hostname=name,
        )
        sent = Report(
            boot_id=f"boot-{name}",
            seq=seq,
            agent_version="1",
            applied_rev=rev,
            inventory_hash="h",
            inventory=inventory,
            holds=[],
            assignments=statuses,
        )
        await self.database.write(report, self.at(), self.ids[name], sent)

    async def found(self, truth: Truth | None = None) -> list[str]:
        return await self.database.write(check, NOW, truth)

    async def found_with(self, statements: tuple[str, ...], watch: Watch) -> set[str]:
        """Return the numbers of what a watch sees once rows were changed; then everything is undone."""

        def body(connection: Connection) -> None:
            for statement in statements:
                planted(connection, statement.format(**self.ids))
            raise Undone(watch.check(connection, NOW))

        try:
            await self.database.write(body)
        except Undone as undone:
            return {sentence.split()[0] for sentence in undone.found}
        raise AssertionError


def bound(state: DesiredState) -> AssignmentStatus:
    one = state.assignments[0]
    return AssignmentStatus(allocation_id=one.allocation_id, generation=one.generation, state="bound")


def planted(connection: Connection, statement: str) -> None:
    """Change rows as no service would, the guards of the database out of the way."""
    if connection.dialect.name == "sqlite":
        connection.execute(text("PRAGMA defer_foreign_keys = ON"))
        for moment in ("insert", "update"):
            connection.execute(text(f"DROP TRIGGER IF EXISTS muster_booking_overlap_{moment}"))
    else:
        connection.execute(text("ALTER TABLE booking DROP CONSTRAINT IF EXISTS muster_booking_overlap"))
    done = connection.execute(text(statement))
    assert done.rowcount > 0, "the plant must change something"


@pytest.fixture(params=["sqlite", "postgresql"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    url = f"sqlite:///{tmp_path / 'muster.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    database = Database(url)
    scene = Scene(database)
    await scene.build()
    yield scene
    await database.close()


GANG = "(SELECT min(id) FROM allocation WHERE reservation_id = '{gang}')"
LATER = "(SELECT min(id) FROM allocation WHERE reservation_id = '{later}')"

PLANTS = {
    "two live bookings overlap": ("I01", f"UPDATE booking SET node_id = '{{a}}', start_ms = {START} WHERE live"),
    "two allocations of one atom are told": (
        "I09",
        "UPDATE allocation SET bind_state = 'bound', node_id = '{a}' WHERE live",
    ),
    "a member is missing": ("I02", f"UPDATE allocation SET live = false WHERE id = {GANG}"),
    "two members share a node": ("I02", "UPDATE allocation SET node_id = '{a}' WHERE reservation_id = '{gang}'"),
    "a member has another window": ("I02", f"UPDATE booking SET end_ms = end_ms + 1 WHERE allocation_id = {GANG}"),
    "a member gives too little": ("I02", f"UPDATE booking SET mask = 1 WHERE allocation_id = {GANG}"),
    "a gang shares no value": ("I02", "UPDATE reservation SET agreed = '[]' WHERE id = '{gang}'"),
    "a member has no booking": ("I02", f"DELETE FROM booking WHERE allocation_id = {LATER}"),
    "pending work keeps members": ("I03", "UPDATE reservation SET state = 'pending' WHERE id = '{later}'"),
    "ended work keeps members": ("I03", "UPDATE reservation SET state = 'ended' WHERE id = '{gang}'"),
    "a booking outlives its member": ("I03", f"UPDATE allocation SET live = false WHERE id = {LATER}"),
    "active before all are bound": ("I04", f"UPDATE allocation SET bind_state = 'binding' WHERE id = {GANG}"),
    "bound before the start": ("I04", "UPDATE reservation SET start_ms = start_ms + 60000 WHERE id = '{gang}'"),
    "bound in an unknown boot": ("I04", f"UPDATE allocation SET bound_boot = 'x' WHERE id = {GANG}"),
    "a booking names another node": ("I05", f"UPDATE booking SET node_id = '{{a}}' WHERE allocation_id = {LATER}"),
    "atoms that never were": ("I05", f"UPDATE booking SET mask = mask * 2 WHERE allocation_id = {LATER}"),
    "a state moves without an event": ("I15", "UPDATE reservation SET state = 'binding' WHERE id = '{later}'"),
    "an event tells an illegal move": (
        "I15",
        "UPDATE event SET type = 'reservation.active' WHERE type = 'reservation.placed'",
    ),
    "a member is of a later generation": ("I16", f"UPDATE allocation SET generation = 9 WHERE id = {GANG}"),
    "a gang without a charge": ("I23", "DELETE FROM charge WHERE reservation_id = '{gang}'"),
    "a charge given back too early": ("I23", "UPDATE charge SET returned_ms = charged_ms"),
    "a charge kept after the end": ("I23", "UPDATE reservation SET state = 'ended' WHERE id = '{later}'"),
    "a charge that skips a number": ("I23", "UPDATE charge SET number = 2 WHERE reservation_id = '{gang}'"),
    "a charge of another amount": ("I23", "UPDATE charge SET milli = milli - 1"),
    "a charge of somebody else": ("I23", "UPDATE charge SET tenant_id = 'other'"),
    "a charge given back before it was": ("I23", "UPDATE charge SET returned_ms = charged_ms - 1"),
    "a version without an event": ("I28", "UPDATE reservation SET version = version + 1 WHERE id = '{gang}'"),
    "an event is missing": ("I28", "DELETE FROM event WHERE subject = '{gang}' AND version = 2"),
    "a node changes without an event": ("I28", "UPDATE node SET version = version + 1"),
    "an end without an event": (
        "I28",
        "UPDATE allocation SET live = false, bind_state = 'released' WHERE reservation_id = '{gang}'",
        "UPDATE reservation SET state = 'ended' WHERE id = '{gang}'",
    ),
}


async def test_what_the_services_made_breaks_nothing(scene: Scene) -> None:
    assert await scene.found() == []


async def test_each_planted_violation_is_seen(scene: Scene) -> None:
    for name, (number, *statements) in PLANTS.items():
        assert number in await scene.found_with(tuple(statements), Watch()), name


OF_UPKEEP = "reservation_id = '{upkeep}'"
INTO_WINDOW = f"start_ms = {START + 5 * 3_600_000}, end_ms = {START + 6 * 3_600_000}"

PLANTS_OF_UPKEEP = {
    "a booked node is not booked": ("I13", f"UPDATE booking SET live = false WHERE {OF_UPKEEP} AND node_id = '{{a}}'"),
    "a booking that nobody told of": ("I13", "UPDATE maintenance_node SET booked = false WHERE node_id = '{a}'"),
    "a booking outlives its maintenance": ("I13", "UPDATE maintenance SET ended_ms = 1"),
    "a booking of another window": ("I13", f"UPDATE booking SET end_ms = end_ms + 1 WHERE {OF_UPKEEP}"),
    "a GPU is left out": ("I13", f"UPDATE booking SET mask = 1 WHERE {OF_UPKEEP}"),
    "a booking of nobody": ("I13", f"UPDATE booking SET allocation_id = 'x' WHERE {OF_UPKEEP} AND node_id = '{{a}}'"),
    "a version without an event": ("I28", "UPDATE maintenance SET version = version + 1"),
    "somebody new in the window": ("I19", f"UPDATE booking SET {INTO_WINDOW} WHERE allocation_id = {LATER}"),
}


async def test_each_planted_violation_of_maintenance_is_seen(scene: Scene) -> None:
    wanted = MaintenanceRequest(nodes=[*NODES], start="+5h", duration="2h", reason="new fans")
    scene.ids["upkeep"] = await scene.database.flow(maintenance.create, scene.at(), wanted, scene.index)
    assert await scene.found() == []

    for name, (number, *statements) in PLANTS_OF_UPKEEP.items():
        assert number in await scene.found_with(tuple(statements), Watch()), name


async def test_what_only_a_witness_can_tell_is_seen_by_who_watched(scene: Scene) -> None:
    watch = Watch()
    assert await scene.database.write(watch.check, NOW) == []

    fallen = "UPDATE reservation SET generation = 0 WHERE id = '{later}'"
    joined = """UPDATE reservation SET agreed = '[["fabric.domain", "f.2"]]' WHERE id = '{gang}'"""

    older = "UPDATE node SET seq = seq - 1"

    assert "I16" in await scene.found_with((fallen,), watch)
    assert await scene.found_with((older,), watch) == {"I33"}
    assert await scene.found_with((joined,), Watch()) == {"I02"}


async def everything_exposed(scene: Scene) -> Truth:
    def members(connection: Connection) -> Sequence[Row[Any]]:
        return connection.execute(
            text("SELECT id, node_id, reservation_id, bound_boot FROM allocation WHERE bound_ms > 0")
        ).all()

    truth = Truth()
    for row in await scene.database.read(members):
        gpus = frozenset({f"GPU-of-{row.node_id}"})
        truth.exposed(Exposure(row.node_id, row.bound_boot, row.id, row.reservation_id, gpus, START + 20))
        truth.awake_since_ms[row.node_id] = START
    return truth


async def test_what_the_drivers_did_as_told_breaks_nothing(scene: Scene) -> None:
    assert await scene.found(await everything_exposed(scene)) == []


async def test_active_without_having_been_exposed_is_seen(scene: Scene) -> None:
    assert {sentence.split()[0] for sentence in await scene.found(Truth())} == {"I04"}


EXPOSED = {
    "released while exposed": ("I09", f"UPDATE allocation SET bind_state = 'released' WHERE id = {GANG}"),
    "exposed past its grant": ("I08", f"UPDATE allocation SET grant_until_ms = {START - 5_000} WHERE id = {GANG}"),
    "exposed without a grant": ("I08", f"UPDATE allocation SET grant_until_ms = NULL WHERE id = {GANG}"),
    "exposed before the start": ("I08", f"UPDATE booking SET start_ms = start_ms + 5000 WHERE allocation_id = {GANG}"),
}


async def test_each_exposure_that_the_book_does_not_know_is_seen(scene: Scene) -> None:
    truth = await everything_exposed(scene)

    for name, (number, statement) in EXPOSED.items():
        assert number in await scene.found_with((statement,), Watch(truth)), name


async def test_a_dead_agent_is_not_blamed_for_what_it_could_not_end(scene: Scene) -> None:
    truth = await everything_exposed(scene)
    truth.awake_since_ms.clear()

    assert await scene.found_with(EXPOSED["exposed past its grant"][1:], Watch(truth)) == set()


def test_a_device_with_two_tenants_at_one_instant_is_seen() -> None:
    truth = Truth()
    for number, start in ((1, 0), (2, 10)):
        truth.exposed(Exposure("n", "boot", f"alloc_{number}", f"rsv_{number}", frozenset({"GPU-0"}), start))

    assert truth.faults == ["I07 GPU-0 is exposed to alloc_2 while alloc_1 still has it"]


def test_a_device_handed_over_after_its_withdrawal_is_no_fault() -> None:
    truth = Truth()
    truth.exposed(Exposure("n", "boot", "alloc_1", "rsv_1", frozenset({"GPU-0"}), 0))
    truth.withdrawn("n", "alloc_1", 10)
    truth.exposed(Exposure("n", "boot", "alloc_2", "rsv_2", frozenset({"GPU-0"}), 10))

    assert truth.faults == []
