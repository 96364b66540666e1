"""What one reservation or one node does wrong stays its own trouble."""

from collections.abc import Sequence

import pytest
from sqlalchemy import Connection

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.model import IllegalMoveError
from muster_coordinator.service import look, sweep
from muster_coordinator.service.advance import advance_batch
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.nodes import join
from muster_coordinator.store import read
from muster_shared.errors import Code, Problem
from muster_shared.wire import Registration
from tests.support.service_world import HOUR, MINUTE, SECOND, World, asks


async def test_a_bug_that_one_reservation_meets_does_not_stop_the_starts_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.join_all("a1 a2")
    poison = await world.reserve(asks(start="+1h"))
    sound = await world.reserve(asks(start="+1h"))

    def poisoned(connection: Connection, at: Moment, reservation_ids: Sequence[str], index: PoolIndex) -> bool:
        if poison.id in reservation_ids:
            raise IllegalMoveError("planted")
        return advance_batch(connection, at, reservation_ids, index)

    monkeypatch.setattr(sweep, "advance_batch", poisoned)
    await world.wait(HOUR)

    assert (await world.state(poison.id), await world.state(sound.id)) == ("placed", "active")


async def test_a_gang_does_not_wait_for_the_atoms_that_its_own_dropped_member_still_holds(world: World) -> None:
    """The member that did not bind in time may hold its atoms for ever: the next try goes elsewhere, or waits."""
    silent = await world.join("a1")
    silent.confirms = silent.lets_go = False
    gang = await world.reserve(asks())
    await world.wait(3 * MINUTE)

    assert await world.state(gang.id) == "pending"
    other = await world.join("a2")
    await world.wait(MINUTE)

    assert await world.state(gang.id) == "active"
    assert other.told


async def test_a_clone_that_shows_no_gpu_does_not_take_over_a_node_that_reports(world: World) -> None:
    """Its driver may not be up yet: while the known host is heard from, the newcomer waits."""
    await world.join("a1")
    clone = Registration(name="a1", machine_id="machine-a1", agent_version="1")

    with pytest.raises(Problem) as refusal:
        await world.coordinator.write(join.register, clone, "token-of-the-clone-0001")

    assert refusal.value.code is Code.CONFLICT


async def test_a_coordinator_that_was_away_itself_begins_a_new_epoch_and_calls_nobody_silent(world: World) -> None:
    await world.join("a1")
    await world.settle()
    before = await world.coordinator.database.read(read.pools)
    world.clock.ms += 40 * SECOND
    world.coordinator.passes.begin_anew()
    await world.coordinator.passes.run_once()
    after = await world.coordinator.database.read(read.pools)

    assert after[0].epoch == before[0].epoch + 1
    assert (await world.coordinator.database.read(look.node, world.clock.moment(), "a1")).reachable
