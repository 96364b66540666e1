"""MIG instances and slots: a GPU offers one kind at a time, and its parts are counted alike everywhere."""

from collections.abc import Sequence

import pytest
from sqlalchemy import Connection, select

from muster_coordinator.service import look
from muster_coordinator.service.bodies import DeviceRequest, PreviewView, ReservationRequest
from muster_coordinator.service.nodes import slots
from muster_coordinator.store.tables import ATOM
from muster_shared.devices import share_milli
from muster_shared.errors import Code, Problem
from tests.support.coordinator_agent import MIG_SLICES, ScriptedAgent
from tests.support.service_world import World, asks


def wanting(*devices: DeviceRequest, start: str | None = None, tenant: str = "acme") -> ReservationRequest:
    return asks(start=start, tenant=tenant).model_copy(update={"devices": list(devices)})


def mig(count: int = 1, profile: str | None = "1g.10gb") -> DeviceRequest:
    return DeviceRequest(device_class="mig", count=count, profile=profile)


def gpu(count: int = 1) -> DeviceRequest:
    return DeviceRequest(count=count)


def slot(count: int = 1) -> DeviceRequest:
    return DeviceRequest(device_class="slot", count=count)


async def split_node(world: World, name: str = "a1", gpus: int = 1, profiles: str | None = None) -> ScriptedAgent:
    """Let a node join whose first GPU is in MIG mode."""
    agent = await world.join(name, gpus=gpus)
    if profiles is None:
        agent.split(0)
    else:
        agent.split(0, profiles)
    await agent.report()
    return agent


async def cut(world: World, agent: ScriptedAgent, shares: int, device: str | None = None) -> None:
    """Let GPUs of a node be shared in time by so many."""
    await world.coordinator.write(slots.cut, agent.name, device, shares)


async def previewed(world: World, asked: ReservationRequest) -> PreviewView:
    return await world.coordinator.database.read(look.preview, world.clock.moment(), asked, world.coordinator.index)


async def numbers(world: World) -> dict[str, int]:
    """Return the atom number of each device that a node offers now."""

    def read(connection: Connection) -> dict[str, int]:
        listed = select(ATOM.c.device, ATOM.c.number).where(ATOM.c.listed).order_by(ATOM.c.number)
        return {row.device: row.number for row in connection.execute(listed)}

    return await world.coordinator.database.read(read)


async def devices_of(world: World, reservation_id: str) -> Sequence[str]:
    (member,) = (await world.get(reservation_id)).members
    return member.devices


async def test_a_split_gpu_offers_its_instances_and_is_none_itself(world: World) -> None:
    await split_node(world, gpus=2)

    parts = await world.reserve(wanting(mig(MIG_SLICES)))
    one_more = await world.reserve(wanting(mig()))
    whole = await world.reserve(wanting(gpu()))
    second = await world.reserve(wanting(gpu()))

    assert [one.state for one in (parts, one_more, whole, second)] == ["binding", "pending", "binding", "pending"]
    assert await devices_of(world, parts.id) == [f"MIG-a1-0-{at:02d}-1" for at in range(MIG_SLICES)]
    assert await devices_of(world, whole.id) == ["GPU-a1-0001"]


async def test_only_instances_of_the_asked_profile_are_given(world: World) -> None:
    await split_node(world, profiles="3g.40gb 1g.10gb 3g.40gb")

    large = await world.reserve(wanting(mig(2, "3g.40gb")))
    small = await world.reserve(wanting(mig(1, "1g.10gb")))
    missing = await world.reserve(wanting(mig(1, "2g.20gb")))

    assert await devices_of(world, large.id) == ["MIG-a1-0-00-1", "MIG-a1-0-02-1"]
    assert await devices_of(world, small.id) == ["MIG-a1-0-01-1"]
    assert missing.condition is not None
    assert (missing.state, missing.condition.reason) == ("pending", "neverFits")


async def test_a_booking_moves_away_from_a_gpu_that_is_split(world: World) -> None:
    node = await world.join("a1", gpus=1)
    booked = await world.reserve(wanting(gpu(), start="+1h"))
    await world.join("a2", gpus=1)

    node.split(0)
    await node.report()
    await world.settle()

    assert await world.nodes_of(booked.id) == "a2"
    assert await world.story(booked.id) == ["created", "placed", "at_risk", "repaired"]
    assert (await world.reserve(wanting(mig(MIG_SLICES), start="+1h"))).state == "placed"


async def test_instances_are_given_to_nobody_while_their_gpu_is_booked_whole(world: World) -> None:
    """The booking lies beyond the repair's horizon, so it keeps its window; before it, the instances are free."""
    node = await world.join("a1", gpus=1)
    booked = await world.reserve(wanting(gpu(), start="+48h"))
    node.split(0)
    await node.report()
    await world.settle()

    beside = await world.reserve(wanting(mig(), start="+48h"))
    before = await world.reserve(wanting(mig(), start="+47h"))
    at_risk = await world.get(booked.id)

    assert (at_risk.state, len(at_risk.at_risk)) == ("placed", 1)
    assert (beside.state, before.state) == ("pending", "placed")
    assert beside.condition is not None
    assert [one.reason for one in beside.condition.blockers] == ["booked"]


async def test_instances_are_given_out_when_the_last_tenant_of_the_whole_gpu_has_let_go(world: World) -> None:
    node = await world.join("a1", gpus=1)
    booked = await world.reserve(wanting(gpu()))
    await world.settle()
    node.split(0)
    await node.report()
    waiting = await world.reserve(wanting(mig(), tenant="next"))
    node.lets_go = False
    await world.coordinator.release(booked.id)
    await world.settle()
    held = await world.state(waiting.id)
    node.lets_go = True
    await world.settle()

    assert (waiting.state, held, await world.state(waiting.id)) == ("pending", "pending", "active")


async def test_a_whole_gpu_is_given_to_nobody_while_an_instance_of_it_is_booked(world: World) -> None:
    node = await split_node(world)
    booked = await world.reserve(wanting(mig(), start="+48h"))
    node.mig.clear()
    await node.report()
    await world.settle()

    beside = await world.reserve(wanting(gpu(), start="+48h"))
    before = await world.reserve(wanting(gpu(), start="+47h"))

    assert (await world.state(booked.id), beside.state, before.state) == ("placed", "pending", "placed")


async def test_an_instance_that_is_made_anew_keeps_its_number_where_nobody_booked_it(world: World) -> None:
    node = await split_node(world)
    before = await numbers(world)
    node.split(0, turn=2)
    await node.report()

    after = await numbers(world)
    assert list(after.values()) == list(before.values())
    assert not after.keys() & before.keys()


async def test_an_instance_that_is_made_anew_under_a_booking_is_lost_to_it(world: World) -> None:
    node = await split_node(world)
    booked = await world.reserve(wanting(mig(), start="+1h"))
    (lost,) = await devices_of(world, booked.id)
    before = await numbers(world)
    node.split(0, turn=2)
    await node.report()
    await world.settle()

    after = await numbers(world)
    (given,) = await devices_of(world, booked.id)
    (risk,) = await world.told(booked.id, "reservation.at_risk")
    assert risk["risks"] == ["a1: a booked device is gone"]
    assert (await world.state(booked.id), after[given] != before[lost]) == ("placed", True)
    assert before[lost] not in after.values()


async def test_two_tenants_share_a_gpu_in_time_and_their_node_is_told_so(world: World) -> None:
    node = await world.join("a1", gpus=1)
    await cut(world, node, 2)

    first = await world.reserve(wanting(slot(), tenant="first"))
    second = await world.reserve(wanting(slot(), tenant="second"))
    third = await world.reserve(wanting(slot(), tenant="third"))
    desired = await world.coordinator.desired_of(node.node_id)
    await world.settle()

    assert [(one.tenant_id, one.devices, one.shared) for one in desired.assignments] == [
        (tenant, ["GPU-a1-0000"], ["GPU-a1-0000"]) for tenant in ("first", "second")
    ]
    states = [await world.state(one.id) for one in (first, second, third)]
    assert states == ["active", "active", "pending"]


async def test_two_shares_of_one_gpu_are_one_device(world: World) -> None:
    node = await world.join("a1", gpus=1)
    await cut(world, node, 4)
    booked = await world.reserve(wanting(slot(3)))

    (told,) = (await world.coordinator.desired_of(node.node_id)).assignments

    assert (told.devices, told.shared) == (["GPU-a1-0000"], ["GPU-a1-0000"])
    assert (await previewed(world, wanting(slot()))).quota_milli == share_milli(1, 4)
    assert (await previewed(world, wanting(slot(2)))).fits is False
    assert len((await world.get(booked.id)).members) == 1


@pytest.mark.parametrize("moment", ["booked for later", "active", "not yet let go of"])
async def test_a_gpu_is_not_cut_under_a_booking(world: World, moment: str) -> None:
    node = await world.join("a1", gpus=2)
    booked = await world.reserve(wanting(gpu(), start="+48h" if moment == "booked for later" else None))
    await world.settle()
    (device,) = await devices_of(world, booked.id)
    (other,) = {"GPU-a1-0000", "GPU-a1-0001"} - {device}
    node.lets_go = False
    if moment == "not yet let go of":
        await world.coordinator.release(booked.id)
        await world.settle()
    before = await world.rows()

    for which in (device, None):
        with pytest.raises(Problem, match=f"'a1' is booked by {booked.id} until") as refusal:
            await cut(world, node, 2, which)
        assert refusal.value.code is Code.CONFLICT
        assert await world.rows() == before
    await cut(world, node, 2, other)

    assert await devices_of(world, (await world.reserve(wanting(slot(2)))).id) == [other]
    assert await numbers(world) == {device: 0 if device < other else 1, other: 3}


async def test_a_gpu_that_is_cut_waits_for_its_shares_and_is_whole_again_after(world: World) -> None:
    node = await world.join("a1", gpus=1)
    waiting = await world.reserve(wanting(slot()))
    assert waiting.condition is not None
    assert (waiting.state, waiting.condition.reason) == ("pending", "neverFits")
    await cut(world, node, 2)
    await world.settle()
    shared = await world.state(waiting.id)
    whole = await world.reserve(wanting(gpu(), tenant="whole"))
    await world.coordinator.release(waiting.id)
    await world.settle()
    await cut(world, node, 0)
    await world.settle()

    assert (shared, whole.state, await world.state(whole.id)) == ("active", "pending", "active")


async def test_whole_gpus_and_an_instance_are_placed_bound_and_released_together(world: World) -> None:
    node = await split_node(world, gpus=9)
    booked = await world.reserve(wanting(gpu(8), mig()))
    (told,) = (await world.coordinator.desired_of(node.node_id)).assignments
    await world.settle()
    active = await world.get(booked.id)
    beside = await world.reserve(wanting(mig(MIG_SLICES - 1)))
    refused = await world.reserve(wanting(gpu(), mig()))
    await world.coordinator.release(booked.id)
    await world.settle()

    assert (active.state, active.members[0].devices) == ("active", told.devices)
    assert told.shared == []
    assert sorted(told.devices) == [*(f"GPU-a1-{at:04d}" for at in range(1, 9)), "MIG-a1-0-00-1"]
    assert (beside.state, refused.state) == ("binding", "pending")
    assert [await world.state(one.id) for one in (booked, refused)] == ["ended", "active"]


async def test_seven_instances_and_a_whole_gpu_are_counted_alike_everywhere(world: World) -> None:
    """S37: preview, refusals, atoms and the rollup agree on a GPU that is split and half given away."""
    await split_node(world, gpus=2)
    part = share_milli(1, MIG_SLICES)
    all_parts = await previewed(world, wanting(mig(MIG_SLICES)))
    await world.reserve(wanting(mig(3)))

    def stored(connection: Connection) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for kind, milli in connection.execute(select(ATOM.c.kind, ATOM.c.milli).where(ATOM.c.listed)):
            found.setdefault(kind, []).append(milli)
        return found

    rest = await previewed(world, wanting(mig(MIG_SLICES - 3)))
    too_much = await previewed(world, wanting(mig(MIG_SLICES - 2)))
    whole = await previewed(world, wanting(gpu()))
    two = await previewed(world, wanting(gpu(2)))
    (pool,) = await world.coordinator.database.read(look.pools, world.clock.moment())
    node = await world.coordinator.database.read(look.node, world.clock.moment(), "a1")

    assert await world.coordinator.database.read(stored) == {"gpu": [1_000], "mig": [part] * MIG_SLICES}
    assert (all_parts.quota_milli, rest.quota_milli, whole.quota_milli) == (7 * part, 4 * part, 1_000)
    assert (rest.fits, too_much.fits, whole.fits, two.fits) == (True, False, True, False)
    assert two.condition is not None
    assert two.condition.reason == "neverFits"
    assert {one.quota_milli for one in too_much.nearest} == {5 * part}
    # A split GPU is a GPU of the pool, but no whole one that could be given.
    assert (pool.total, pool.allocatable, pool.free, pool.active, pool.reserved) == (2, 1, 1, 0, 0)
    assert (node.gpus_total, node.gpus_free) == (2, 1)
    assert node.free == {"gpu": 1, "mig 1g.10gb": 4}
    assert {kind: node.offers[kind] for kind in node.free} == {"gpu": 1, "mig 1g.10gb": MIG_SLICES}
