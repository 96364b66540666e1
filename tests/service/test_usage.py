"""Usage records: from active to the confirmed release, once for each node, exact, and never changed."""

from functools import partial

import pytest

from muster_coordinator.service.accounts import usage
from muster_coordinator.service.accounts.usage_bodies import UsageLine, UsageQuery, UsageRecord
from muster_coordinator.service.bodies import DeviceRequest, ReservationRequest
from muster_coordinator.service.changes.bodies import ShrinkRequest
from muster_coordinator.service.changes.shrink import shrink
from muster_coordinator.service.nodes import operate
from muster_coordinator.service.nodes.slots import cut
from muster_shared.errors import Code, Problem
from tests.support.coordinator_kill import KilledError, When, mortal
from tests.support.service_world import HOUR, MINUTE, SECOND, World, asks


async def records(world: World, **asked: object) -> list[UsageRecord]:
    query = UsageQuery.model_validate(asked)
    return (await world.coordinator.database.read(usage.records, world.clock.moment(), query)).items


async def line(world: World, **asked: object) -> UsageLine:
    query = UsageQuery.model_validate(asked)
    (item,) = (await world.coordinator.database.read(usage.lines, world.clock.moment(), query)).items
    return item


async def test_a_gang_is_used_from_active_to_each_nodes_confirmed_release(world: World) -> None:
    one, other = await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, duration="1h", name="train"))
    await world.wait(10 * SECOND)
    from_ms = (await world.get(gang.id)).activated
    assert from_ms is not None
    other.lets_go = False
    await world.until(from_ms + 30 * MINUTE)
    await world.coordinator.release(gang.id)
    await world.settle()
    first_ms = world.now_ms
    await world.wait(MINUTE)
    other.lets_go = True
    await world.settle()

    rows = {row.node_id: row for row in await records(world)}

    assert [(rows[node.node_id].start, rows[node.node_id].end) for node in (one, other)] == [
        (from_ms, first_ms),
        (from_ms, world.now_ms),
    ]
    assert {(row.milli, row.name, row.kind, row.final) for row in rows.values()} == {(8_000, "train", "regular", True)}
    assert (await line(world)).delivered_milli_ms == sum(row.milli_ms for row in rows.values())


async def test_what_never_was_active_has_used_nothing(world: World) -> None:
    agents = await world.join_all("a1 a2", fabric="fabric-a.1")
    agents[1].confirms = False
    gang = await world.reserve(asks(2, duration="1h"))
    await world.settle()
    assert await world.binds(gang.id) == {"a1": "bound", "a2": "binding"}

    await world.coordinator.cancel(gang.id)
    await world.settle()

    assert await records(world) == []
    assert [row[-1] - row[-2] for row in (await world.rows())["usage"]] == [0]


async def test_a_node_that_is_replaced_and_the_one_that_replaces_it_have_a_record_each(world: World) -> None:
    """S28: the gang's total is the sum of its members, each for its own time."""
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, duration="2h", on_member_loss="replace"))
    await world.settle()
    members = {one.node_name for one in (await world.get(gang.id)).members}
    victim = next(agent for agent in world.agents.values() if agent.name in members)
    began_ms = world.now_ms
    await world.wait(20 * MINUTE)
    victim.reboot()
    await world.settle()
    lost_ms = world.now_ms
    await world.until(began_ms + 2 * HOUR)
    await world.settle()

    rows = await records(world)

    assert len({row.allocation_id for row in rows}) == 3
    (gone,) = [row for row in rows if row.node_id == victim.node_id and row.end <= lost_ms]
    assert (gone.end - gone.start) // MINUTE == 20
    assert (await line(world)).delivered_milli_ms == sum(8_000 * (row.end - row.start) for row in rows)


async def test_what_goes_on_is_counted_until_now_and_stays_as_it_was_counted(world: World) -> None:
    await world.join("a1")
    await world.reserve(asks(duration="2h"))
    await world.settle()
    from_ms = world.now_ms
    await world.wait(HOUR)

    half = await records(world, **{"from": str(from_ms), "to": str(from_ms + HOUR // 2)})
    await world.wait(2 * HOUR)
    later = await records(world, **{"from": str(from_ms), "to": str(from_ms + HOUR // 2)})

    assert [(row.milli_ms, row.final) for row in half] == [(8_000 * HOUR // 2, False)]
    assert [(row.milli_ms, row.final) for row in later] == [(8_000 * HOUR // 2, True)]


async def test_two_exports_of_times_that_touch_are_the_export_of_the_whole(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await world.reserve(asks(2, duration="1h"))
    await world.settle()
    from_ms = world.now_ms - 1
    middle_ms = from_ms + 17 * MINUTE + 13
    await world.wait(2 * HOUR)

    async def total(start_ms: int, end_ms: int) -> int:
        return sum(row.milli_ms for row in await records(world, **{"from": str(start_ms), "to": str(end_ms)}))

    assert await total(from_ms, middle_ms) + await total(middle_ms, world.now_ms) == await total(from_ms, world.now_ms)
    assert await total(from_ms, middle_ms) == 2 * 8_000 * (middle_ms - from_ms - 1)


async def test_a_share_of_a_gpu_is_counted_as_what_it_is(world: World) -> None:
    """S37: the same conversion as the quota's."""
    node = await world.join("a1", gpus=1)
    await world.coordinator.write(cut, node.node_id, None, 8)
    share = ReservationRequest(tenant_id="acme", devices=[DeviceRequest.model_validate({"class": "slot", "count": 3})])
    await world.reserve(share.model_copy(update={"duration": "1h"}))
    await world.settle()
    await world.wait(HOUR)

    (row,) = await records(world)

    assert row.milli == 375


async def test_promised_delivered_and_late(world: World) -> None:
    node = await world.join("a1")
    node.confirms = False
    await world.reserve(asks(duration="1h"))
    await world.settle()
    start_ms = world.now_ms
    await world.wait(30 * SECOND)
    node.confirms = True
    await world.settle()
    await world.until(start_ms + HOUR)

    told = await line(world)

    assert told.promised_milli_ms == 8_000 * HOUR
    assert 30 * SECOND <= told.late_ms < 60 * SECOND
    assert told.delivered_milli_ms <= 8_000 * (HOUR - 30 * SECOND)
    assert told.delivered_gpu_hours == round(told.delivered_milli_ms / (1_000 * HOUR), 6)


async def test_a_gang_that_shrinks_is_promised_and_uses_less_from_then_on(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, duration="2h"))
    await world.settle()
    await world.wait(HOUR)
    await world.coordinator.write(shrink, gang.id, ShrinkRequest(to=1), world.coordinator.index)
    await world.settle()
    await world.wait(HOUR)

    told = await line(world)

    assert (told.promised_milli_ms, told.delivered_milli_ms) == (3 * 8_000 * HOUR, 3 * 8_000 * HOUR)


async def test_a_fenced_node_has_used_until_it_was_attested(world: World) -> None:
    node = await world.join("a1")
    gang = await world.reserve(asks(duration="30m"))
    await world.settle()
    node.is_up = False
    await world.wait(2 * HOUR)
    assert [row.final for row in await records(world)] == [False]

    await world.coordinator.operate(operate.fence, node.node_id, "pulled the plug")

    (row,) = await records(world)
    assert (row.final, row.end, row.reservation_id) == (True, world.now_ms, gang.id)


async def test_a_tenant_and_a_pool_have_their_own(world: World) -> None:
    await world.join_all("a1 a2")
    for tenant in ("acme", "globex"):
        await world.reserve(asks(tenant=tenant, duration="1h"))
    await world.settle()
    await world.wait(HOUR)

    assert [row.tenant_id for row in await records(world, tenantId="acme")] == ["acme"]
    assert [row.tenant_id for row in await records(world, poolId="default")] == ["acme", "globex"]


@pytest.mark.parametrize(
    ("asked", "code", "sentence"),
    [
        ({"to": "+1h"}, Code.INVALID_INPUT, "what lies ahead is not used yet"),
        ({"from": "now"}, Code.INVALID_INPUT, "it must be before the end"),
        ({"from": "-1x"}, Code.INVALID_INPUT, "from"),
        ({"poolId": "nowhere"}, Code.NOT_FOUND, "nowhere"),
    ],
)
async def test_a_time_that_is_none_is_refused(world: World, asked: dict[str, str], code: Code, sentence: str) -> None:
    with pytest.raises(Problem, match=sentence) as refusal:
        await records(world, **asked)

    assert refusal.value.code is code


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_commit_of_the_end_each_node_has_one_record(world: World, when: When) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    died, kill_at = True, 0
    while died:
        kill_at += 1
        died = False
        gang = await world.reserve(asks(2, duration="1h"))
        await world.settle()
        await world.restart(partial(mortal, kill_at=kill_at, when=when))
        world.clock.ms += 16 * SECOND
        for act in (partial(_released, world, gang.id), world.beat, world.settle):
            try:
                await act()
            except KilledError:
                died = True
                await world.restart()
                world.clock.ms += 16 * SECOND
                await act()
                await world.settle()
        assert await world.state(gang.id) == "ended"
        assert len([row for row in await records(world) if row.reservation_id == gang.id]) == 2

    assert kill_at > 2


async def _released(world: World, reservation_id: str) -> None:
    await world.coordinator.release(reservation_id)
