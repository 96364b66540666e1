"""The doctor finds each kind of broken row, says which rule it breaks, and is silent where all is well."""

import pytest
from sqlalchemy import Connection, text

from muster_coordinator.service.accounts.bodies import QuotaRequest
from muster_coordinator.service.accounts.quota import set_quota
from muster_coordinator.service.doctor.bodies import Diagnosis
from muster_coordinator.service.doctor.examine import examine
from muster_coordinator.service.doctor.finding import RULES
from tests.support.service_world import HOUR, World, asks


class UndoneError(Exception):
    """What was planted is taken back with its transaction."""

    def __init__(self, found: Diagnosis) -> None:
        super().__init__()
        self.found = found


async def examined(world: World) -> Diagnosis:
    return await world.coordinator.database.read_still(examine, world.clock.moment())


async def lived(world: World) -> None:
    """One gang that is over, one that runs, one that is booked, one that waits."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await world.coordinator.write(set_quota, QuotaRequest(tenant_id="acme", gpus=64))
    await world.reserve(asks(2, duration="1h"))
    await world.settle()
    await world.wait(HOUR)
    await world.reserve(asks(1, duration="1h"))
    await world.reserve(asks(2, duration="1h", start="+5h"))
    await world.reserve(asks(1, duration="8h"))
    await world.settle()


async def test_a_sound_database_has_no_findings(world: World) -> None:
    await lived(world)

    found = await examined(world)

    assert (found.items, found.count, found.nodes) == ([], 0, 2)
    assert found.reservations >= 2


@pytest.mark.parametrize(
    ("rule", "statement"),
    [
        ("I23", "UPDATE charge SET returned_ms = NULL WHERE returned_ms IS NOT NULL"),
        ("I23", "UPDATE charge SET milli = milli + 1 WHERE returned_ms IS NULL"),
        ("I23", "DELETE FROM charge WHERE returned_ms IS NULL"),
        ("I24", "DELETE FROM usage"),
        ("I24", "UPDATE usage SET start_ms = start_ms - 1"),
        ("I24", "UPDATE usage SET tenant_id = 'globex'"),
        ("I28", "UPDATE reservation SET version = version + 1"),
        ("I28", "DELETE FROM event WHERE type = 'reservation.binding'"),
        ("I02", "UPDATE allocation SET live = FALSE WHERE live"),
        ("I03", "UPDATE reservation SET state = 'ended' WHERE state = 'placed'"),
        ("I04", "UPDATE allocation SET bind_state = 'binding' WHERE bind_state = 'bound'"),
        ("I16", "UPDATE allocation SET generation = 9 WHERE live"),
    ],
)
async def test_what_breaks_a_rule_is_found_by_it(world: World, rule: str, statement: str) -> None:
    await lived(world)

    def broken(connection: Connection) -> None:
        assert connection.execute(text(statement)).rowcount > 0
        raise UndoneError(examine(connection, world.clock.moment()))

    with pytest.raises(UndoneError) as undone:
        await world.coordinator.database.write(broken)

    found = undone.value.found
    assert rule in {one.rule for one in found.items}
    assert {one.says for one in found.items} <= set(RULES.values())
    assert found.count == len(found.items)
