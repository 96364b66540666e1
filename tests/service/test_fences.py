"""Four fences: whatever carries an old value changes nothing."""

from collections.abc import Callable

import pytest

from muster_coordinator.service import sweep
from muster_coordinator.service.nodes import operate
from muster_coordinator.service.sweep import FencedError, Leadership
from muster_coordinator.store import read
from muster_shared.errors import Code, Problem
from muster_shared.wire import AssignmentStatus
from tests.support.coordinator import Rows
from tests.support.coordinator_agent import ScriptedAgent
from tests.support.service_world import HOUR, MINUTE, SECOND, World, asks, end_of


def without(rows: Rows, *tables: str) -> Rows:
    return {name: found for name, found in rows.items() if name not in tables}


async def lead(world: World, holder: str) -> Leadership | None:
    pool_row = await world.coordinator.database.read(read.pool, "default")
    assert pool_row is not None
    return await world.coordinator.write(sweep.lead, pool_row.id, holder)


async def test_a_leader_that_was_replaced_writes_nothing_any_more(world: World) -> None:
    await world.join("a1")
    due = await world.reserve(asks(start="+10s"))
    old = await lead(world, "first")
    assert old is not None
    world.clock.ms += 16 * SECOND
    new = await lead(world, "second")
    assert new is not None
    assert new.epoch == old.epoch + 1
    before = await world.rows()

    with pytest.raises(FencedError, match=f"epoch {old.epoch} of {old.pool_id} is over"):
        await world.coordinator.write(sweep.advance_led, old, [due.id], world.coordinator.index)
    with pytest.raises(FencedError):
        await world.coordinator.write(sweep.listen, old, world.coordinator.index)

    assert await world.rows() == before
    await world.coordinator.write(sweep.advance_led, new, [due.id], world.coordinator.index)
    assert await world.state(due.id) == "binding"


async def test_one_leads_until_its_lease_is_over_and_renewing_begins_no_epoch(world: World) -> None:
    first = await lead(world, "first")
    assert first is not None
    assert await lead(world, "second") is None
    world.clock.ms += 14 * SECOND
    assert await lead(world, "first") == first
    world.clock.ms += 14 * SECOND
    assert await lead(world, "second") is None
    world.clock.ms += 1 * SECOND
    taken = await lead(world, "second")

    assert taken == Leadership(first.pool_id, "second", first.epoch + 1)
    assert await lead(world, "first") is None


Fault = Callable[[ScriptedAgent], None]
LATE: dict[str, Fault] = {
    "the same sequence again": lambda agent: setattr(agent, "seq", agent.seq - 1),
    "an earlier sequence": lambda agent: setattr(agent, "seq", agent.seq - 3),
    "an earlier boot": lambda agent: setattr(agent, "boot", 1),
}


@pytest.mark.parametrize("late", LATE)
async def test_a_late_report_changes_nothing_and_says_so(world: World, late: str) -> None:
    node = await world.join("a1")
    await world.reserve(asks())
    await world.settle()
    node.reboot()
    for _ in range(4):
        await node.report()
    before = await world.rows()
    world.clock.ms += SECOND
    LATE[late](node)
    node.seq += 10 * (node.boot == 1)
    node.fabric, node.gpus = "fabric-z.1", 4
    node.hold(0)

    answer = await node.report()

    assert (answer.accepted, answer.reason) == (False, "stale")
    assert await world.rows() == before


async def test_a_bind_of_another_generation_confirms_nothing(world: World) -> None:
    node = await world.join("a1")
    gang = await world.reserve(asks())
    (told,) = (await node.fetch()).assignments
    right = AssignmentStatus(allocation_id=told.allocation_id, generation=told.generation, state="bound")
    before = without(await world.rows(), "node")

    for generation in (told.generation - 1, told.generation + 1):
        sent = node.next_report(assignments=[right.model_copy(update={"generation": generation})])
        await world.coordinator.take_report(node.node_id, sent)
    assert without(await world.rows(), "node") == before
    await world.coordinator.take_report(node.node_id, node.next_report(assignments=[right]))

    assert await world.state(gang.id) == "active"


async def test_a_new_boot_voids_every_binding_whatever_the_agent_believes(world: World) -> None:
    node = await world.join("a1")
    gang = await world.reserve(asks())
    await world.settle()
    believed = node.next_report().assignments
    node.reboot()

    await world.coordinator.take_report(node.node_id, node.next_report(assignments=believed))

    assert await world.binds(gang.id) == {"a1": "lost"}
    assert (await world.story(gang.id))[-1] == "degraded"
    assert (await node.fetch()).assignments == []


async def test_a_confirmation_of_a_former_placement_binds_nothing(world: World) -> None:
    """The node was told, was replaced, and answers late; meanwhile it is booked for the next placement."""
    slow, _ = await world.join_all("a1 a2", fabric="fabric-a.1")
    slow.confirms = False
    gang = await world.reserve(asks(2))
    await world.settle()
    old = slow.told[0]
    await world.join("a3", fabric="fabric-a.1")
    await world.wait(120 * SECOND)
    assert await world.nodes_of(gang.id) == "a2 a3"
    before = without(await world.rows(), "node")

    late = slow.next_report(assignments=[AssignmentStatus(allocation_id=old, generation=1, state="bound")])
    await world.coordinator.take_report(slow.node_id, late)

    assert without(await world.rows(), "node") == before


async def test_an_order_that_was_never_given_is_confirmed_by_nobody(world: World) -> None:
    node = await world.join("a1")
    other = await world.join("a2")
    booked = await world.reserve(asks(start="+1h"))
    allocation_id = booked.members[0].allocation_id
    assert allocation_id is not None
    before = without(await world.rows(), "node")

    for agent in (node, other):
        status = AssignmentStatus(allocation_id=allocation_id, generation=1, state="bound")
        await world.coordinator.take_report(agent.node_id, agent.next_report(assignments=[status]))

    assert without(await world.rows(), "node") == before


async def test_only_its_own_node_confirms_an_allocation(world: World) -> None:
    first, second = await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2))
    await first.turn()
    (told,) = (await second.fetch()).assignments
    second.has.clear()
    status = AssignmentStatus(allocation_id=told.allocation_id, generation=told.generation, state="bound")
    own = first.next_report().assignments
    before = without(await world.rows(), "node")

    await world.coordinator.take_report(first.node_id, first.next_report(assignments=[*own, status]))

    assert without(await world.rows(), "node") == before
    assert await world.binds(gang.id) == {"a1": "bound", "a2": "binding"}


async def test_a_release_is_confirmed_by_the_revision_that_dropped_it_and_no_older_one(world: World) -> None:
    node = await world.join("a1")
    gang = await world.reserve(asks())
    await world.settle()
    old_rev = node.applied_rev
    await world.coordinator.release(gang.id)
    before = without(await world.rows(), "node")

    for _ in range(3):
        sent = node.next_report(assignments=[], applied_rev=old_rev)
        await world.coordinator.take_report(node.node_id, sent)
    assert without(await world.rows(), "node") == before
    await world.coordinator.take_report(node.node_id, node.next_report(assignments=[], applied_rev=old_rev + 1))

    assert await world.state(gang.id) == "ended"


@pytest.mark.parametrize("state", ["binding", "bound", "unbinding"])
async def test_what_is_still_exposed_is_not_released_whatever_was_applied(world: World, state: str) -> None:
    node = await world.join("a1")
    gang = await world.reserve(asks())
    await world.settle()
    await world.coordinator.release(gang.id)
    desired = await node.fetch()
    status = AssignmentStatus.model_validate({"allocation_id": node.told[0], "generation": 1, "state": state})

    sent = node.next_report(assignments=[status], applied_rev=desired.rev + 5)
    await world.coordinator.take_report(node.node_id, sent)

    assert await world.state(gang.id) == "ending"


async def test_a_failed_unbind_that_exposes_nothing_counts_as_released(world: World) -> None:
    node = await world.join("a1")
    gang = await world.reserve(asks())
    await world.settle()
    await world.coordinator.release(gang.id)
    desired = await node.fetch()
    status = AssignmentStatus(allocation_id=node.told[0], generation=1, state="lostByReboot")

    sent = node.next_report(assignments=[status], applied_rev=desired.rev)
    await world.coordinator.take_report(node.node_id, sent)

    assert await world.state(gang.id) == "ended"


async def test_every_grant_is_stored_before_it_leaves_and_never_shrinks(world: World) -> None:
    node = await world.join("a1")
    gang = await world.reserve(asks(duration="2h"))
    grants = []
    for _ in range(3):
        (told,) = (await node.fetch()).assignments
        grants.append(world.now_ms + told.grant_for_ms)
        world.clock.ms += MINUTE

    assert grants == [gang.end] * 3
    rows = (await world.rows())["allocation"]
    assert gang.end in rows[0]


async def test_a_silent_node_with_an_armed_guard_is_free_half_a_minute_after_its_grant(world: World) -> None:
    guarded, bare = await world.join_all("a1 a2")
    ids = [(await world.reserve(asks(duration="30m"))).id for _ in range(2)]
    guarded.guard_armed = True
    await world.settle()
    names = {(await world.get(one)).members[0].node_name: one for one in ids}
    end_ms = end_of(await world.get(ids[0]))
    guarded.is_up = bare.is_up = False
    await world.until(end_ms)
    await world.until(end_ms + 30 * SECOND - 1)
    assert {await world.state(one) for one in ids} == {"ending"}

    await world.until(end_ms + 30 * SECOND)

    assert await world.state(names["a1"]) == "ended"
    await world.until(end_ms + 10 * HOUR)
    assert await world.state(names["a2"]) == "ending"
    await world.coordinator.operate(operate.fence, bare.node_id, "pulled the plug")
    assert await world.state(names["a2"]) == "ended"


async def test_a_node_that_reports_is_not_fenced(world: World) -> None:
    node = await world.join("a1")
    before = await world.rows()

    with pytest.raises(Problem, match="only a silent node is fenced") as refusal:
        await world.coordinator.write(operate.fence, node.node_id, None)

    assert refusal.value.code is Code.CONFLICT
    assert await world.rows() == before


async def test_a_node_that_obeyed_a_revision_from_a_lost_future_is_led_beyond_it_and_confirms_nothing(
    world: World,
) -> None:
    """F09: the database was restored from an older copy, and the node would refuse every lower revision."""
    agent = await world.join("a1")
    gang = await world.reserve(asks())
    await agent.turn()
    await world.coordinator.cancel(gang.id)
    agent.applied_rev += 1_000
    await agent.report()

    rev = await world.coordinator.rev_of(agent.node_id)
    assert rev > agent.applied_rev
    assert await world.state(gang.id) == "ending"  # what a lost future let go of confirms nothing here
    await world.settle()
    assert await world.state(gang.id) == "ended"
    assert agent.applied_rev == rev


async def test_a_revision_beyond_all_counting_is_refused_and_changes_nothing(world: World) -> None:
    agent = await world.join("a1")
    before = await world.rows()

    with pytest.raises(Problem) as refusal:
        await world.coordinator.take_report(agent.node_id, agent.next_report(applied_rev=(1 << 53) - 1))

    assert refusal.value.code is Code.INVALID_INPUT
    assert await world.rows() == before


async def test_s43_a_node_that_was_cut_off_for_a_while_finds_its_work_as_it_was(world: World) -> None:
    """kueue 12735: while nobody knows that the work has stopped, its devices are nobody else's."""
    cut, _ = await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, duration="6h"))
    await world.settle()
    before = (await world.get(gang.id)).members

    cut.is_up = False
    await world.wait(90 * SECOND)
    other = await world.reserve(asks(1, duration="1h"))
    cut.is_up = True
    await world.settle()

    after = await world.get(gang.id)
    assert (after.state, after.generation, after.members) == ("active", 1, before)
    assert (other.state, len(cut.told)) == ("pending", 1)
