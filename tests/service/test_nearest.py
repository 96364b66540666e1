"""The nearest yes of a preview is a yes: made as it says, it is placed; a little more, and it is not."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from muster_coordinator.service import look
from muster_coordinator.service.bodies import GangRequest, PreviewView, ReservationRequest, Yes
from muster_shared.wire import FABRIC_DOMAIN
from tests.support.invariants import check
from tests.support.service_world import MINUTE, World, asks, world_on


@pytest_asyncio.fixture(params=[0, 10 * MINUTE], ids=["at once", "turnaround"])
async def pool(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[World]:
    """Two fabrics of two nodes, booked to different times; one rack spans both fabrics."""
    async with world_on(database_url, {"turnaround_ms": request.param}) as world:
        for number, name in enumerate(("a1", "a2", "b1", "b2")):
            agent = await world.join(name, fabric=f"fabric-{name[0]}.1")
            await world.label(agent, rack=f"r{number % 2}")
        for start, duration, gpus, size in ((None, "2h", 8, 2), ("+3h", "1h", 4, 2), ("+5h", "2h", 8, 1)):
            await world.reserve(asks(size, gpus=gpus, start=start, duration=duration))
        yield world
        assert await world.coordinator.database.read(check, world.now_ms) == []


async def previewed(world: World, asked: ReservationRequest) -> PreviewView:
    return await world.coordinator.database.read(look.preview, world.clock.moment(), asked, world.coordinator.index)


def exactly(
    asked: ReservationRequest, yes: Yes, *, start: int | None = None, end: int | None = None
) -> ReservationRequest:
    """Write what a yes names, or the same with another start or end."""
    keys = list(yes.topology)
    begin = yes.start if start is None else start
    return ReservationRequest(
        tenant_id=asked.tenant_id,
        devices=asked.devices,
        gang=GangRequest(size=yes.gang_size, topology_key=keys[0] if keys else None),
        start=begin,
        end=yes.end if end is None else end,
    )


async def fits(world: World, asked: ReservationRequest) -> bool:
    """Make the request, see whether it is placed, and undo it."""
    view = await previewed(world, asked)
    made = await world.reserve(asked)
    assert view.fits is (made.state != "pending"), "preview and placement never disagree"
    if made.state != "pending":
        assert {one.node_id for one in made.members} == {one.node_id for one in view.members}
    await world.coordinator.cancel(made.id)
    await world.settle()
    return made.state != "pending"


def only(view: PreviewView, change: str) -> list[Yes]:
    return [one for one in view.nearest if one.change == change]


ASKED = {
    "two whole nodes over everything": asks(2, start="+1h", duration="5h"),
    "all nodes for longer than they are free": asks(4, same=None, start="+150m", duration="9h"),
    "three nodes": asks(3, gpus=4, start="+10m", duration="90m"),
    "two nodes in the second gap": asks(2, start="+150m", duration="2h", gpus=6),
    "one node of a fabric and rack": asks(2, same="rack", start="+30m", duration="3h"),
}


@pytest.mark.parametrize("what", ASKED)
async def test_every_yes_is_placed_as_it_says(pool: World, what: str) -> None:
    asked = ASKED[what]
    view = await previewed(pool, asked)

    for yes in view.nearest:
        assert await fits(pool, exactly(asked, yes)), yes


@pytest.mark.parametrize("what", ASKED)
async def test_no_start_is_earlier_than_the_earliest(pool: World, what: str) -> None:
    asked = ASKED[what]
    view = await previewed(pool, asked)

    for yes in only(view, "start"):
        length = yes.end - yes.start
        for earlier in (1, MINUTE, 30 * MINUTE):
            start = yes.start - earlier
            if start >= view.start:
                assert not await fits(pool, exactly(asked, yes, start=start, end=start + length)), (yes, earlier)


@pytest.mark.parametrize("what", ASKED)
async def test_no_duration_is_longer_than_the_longest_and_no_gang_larger(pool: World, what: str) -> None:
    asked = ASKED[what]
    view = await previewed(pool, asked)

    for yes in only(view, "duration"):
        assert not await fits(pool, exactly(asked, yes, end=yes.end + 1)), yes
    for yes in only(view, "gangSize"):
        more = yes.model_copy(update={"gang_size": yes.gang_size + 1})
        assert not await fits(pool, exactly(asked, more)), yes
        assert yes.gang_size < asked.gang.size


async def test_the_scenes_have_every_kind_of_answer(pool: World) -> None:
    kinds = {one.change for asked in ASKED.values() for one in (await previewed(pool, asked)).nearest}

    assert kinds == {"start", "duration", "gangSize", "topology"}


async def test_where_it_fits_other_values_are_named(pool: World) -> None:
    asked = asks(2, gpus=2, start="+9h")
    view = await previewed(pool, asked)

    assert view.fits
    assert {view.topology[FABRIC_DOMAIN], *(one.topology[FABRIC_DOMAIN] for one in view.nearest)} == {
        "fabric-a.1",
        "fabric-b.1",
    }
    assert {one.quota_milli for one in view.nearest} == {view.quota_milli} == {4_000}


async def test_what_never_fits_on_any_node_has_no_nearest(pool: World) -> None:
    view = await previewed(pool, asks(gpus=9))

    assert (view.fits, view.nearest) == (False, [])


async def test_a_label_that_no_node_has_is_told_what_would_fit_with_another_or_none(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")

    told = await world.coordinator.database.read(
        look.preview, world.clock.moment(), asks(2, same="rakc"), world.coordinator.index
    )

    assert told.condition is not None
    assert told.condition.reason == "neverFits"
    assert [(yes.change, yes.topology) for yes in told.nearest] == [
        ("topology", {"fabric.domain": "fabric-a.1"}),
        ("topology", {}),
    ]
