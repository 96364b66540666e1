"""A tenant holds no more than its quota; each gang is charged once, whole, and given back once."""

import pytest
from sqlalchemy import select

from muster_coordinator.api.admission import reserve_all
from muster_coordinator.api.services import Made
from muster_coordinator.service import look
from muster_coordinator.service.access import tokens
from muster_coordinator.service.access.bodies import TokenRequest
from muster_coordinator.service.accounts.bodies import QuotaRemoval, QuotaRequest, QuotaView
from muster_coordinator.service.accounts.quota import quotas, remove_quota, set_quota
from muster_coordinator.service.bodies import DeviceRequest, PreviewView, ReservationRequest, ReservationView
from muster_coordinator.service.changes.bodies import ExtendRequest, ShrinkRequest
from muster_coordinator.service.changes.extend import extend
from muster_coordinator.service.changes.shrink import shrink
from muster_coordinator.service.nodes.slots import cut
from muster_coordinator.service.series.bodies import SeriesRequest
from muster_coordinator.service.series.create import create as create_series
from muster_coordinator.service.together import Asking
from muster_coordinator.store.ledger_tables import CHARGE
from muster_shared.errors import Code, Problem
from tests.support.service_world import HOUR, MINUTE, SECOND, World, asks


async def limit(world: World, gpus: float, tenant: str = "acme") -> QuotaView:
    return await world.coordinator.write(set_quota, QuotaRequest(tenant_id=tenant, gpus=gpus))


async def used(world: World, tenant: str = "acme") -> float:
    (view,) = await world.coordinator.database.read(quotas, tenant)
    return view.used_gpus


async def charges(world: World, reservation_id: str) -> list[tuple[int, bool]]:
    """Return each charge of a reservation: milli-GPU, and whether it was given back."""
    mine = select(CHARGE).where(CHARGE.c.reservation_id == reservation_id).order_by(CHARGE.c.number)
    rows = await world.coordinator.database.read(lambda connection: connection.execute(mine).all())
    return [(row.milli, row.returned_ms is not None) for row in rows]


async def reason(world: World, reservation_id: str) -> str | None:
    view = await world.get(reservation_id)
    return view.condition.reason if view.condition else None


async def test_r15_what_somebody_booked_ends_and_is_given_back_whoever_may_still_call(world: World) -> None:
    """LP 1712381: the tenant owns it, and its end asks for nobody's credential."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await limit(world, 16)
    user = TokenRequest(name="ada", roles=["tenant"], tenant_id="acme")
    await world.coordinator.write(tokens.create, user, "secret-of-ada", "operator", has_root=True)
    gang = await world.reserve(asks(2, duration="1h"))
    await world.settle()

    await world.coordinator.write(tokens.revoke, "ada", "has left", has_root=True)
    await world.wait(HOUR)

    assert await world.coordinator.database.read(tokens.caller_of, "secret-of-ada", world.now_ms) is None
    assert (await world.state(gang.id), await used(world)) == ("ended", 0)


async def test_a_gang_is_charged_whole_with_its_first_placement_and_given_back_at_its_end(world: World) -> None:
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    await limit(world, 24)

    gang = await world.reserve(asks(2, duration="1h"))
    assert await used(world) == 16
    await world.settle()
    assert await used(world) == 16
    await world.coordinator.release(gang.id)
    assert await used(world) == 16  # until its nodes have let go
    await world.settle()

    assert await used(world) == 0
    assert await charges(world, gang.id) == [(16_000, True)]


async def test_what_waits_for_nodes_is_not_charged(world: World) -> None:
    await world.join("a1")
    await limit(world, 64)

    waiting = await world.reserve(asks(2))

    assert waiting.state == "pending"
    assert await used(world) == 0
    assert await charges(world, waiting.id) == []


async def test_a_gang_that_is_more_than_the_limit_is_refused_and_nothing_is_stored(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await limit(world, 8)
    before = await world.rows()

    for request in (asks(2), asks(4), asks(2, start="+5h")):
        with pytest.raises(Problem) as refused:
            await world.reserve(request)
        assert refused.value.code is Code.QUOTA_EXCEEDED

    assert await world.rows() == before


async def test_over_quota_it_waits_and_is_placed_in_the_pass_after_some_is_given_back(world: World) -> None:
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    await limit(world, 16)
    first = await world.reserve(asks(duration="1h"))
    await world.reserve(asks(duration="9h"))

    late = await world.reserve(asks(duration="1h"))

    assert (late.state, await reason(world, late.id)) == ("pending", "quotaExceeded")
    await world.settle()
    await world.wait(MINUTE)
    assert await world.state(late.id) == "pending"
    assert (await world.story(late.id)) == ["created", "unschedulable"]  # once, not at each try
    await world.coordinator.release(first.id)
    await world.settle()
    assert await world.state(late.id) == "active"
    assert await used(world) == 16


async def test_who_is_over_quota_holds_up_nobody_who_asks_for_the_same(world: World) -> None:
    (a1, a2) = await world.join_all("a1 a2", fabric="fabric-a.1")
    await limit(world, 8)
    await world.cordon(a1)
    await world.cordon(a2)
    waiting: list[ReservationView] = []
    for tenant in ("acme", "acme", "other"):
        world.clock.ms += 1  # oldest first
        waiting.append(await world.reserve(asks(tenant=tenant, duration="5h")))
    assert {one.state for one in waiting} == {"pending"}

    await world.uncordon(a1)
    await world.uncordon(a2)
    await world.settle()

    assert [await world.state(one.id) for one in waiting] == ["active", "pending", "active"]
    assert await reason(world, waiting[1].id) == "quotaExceeded"


async def test_several_of_a_tenant_in_one_batch_do_not_pass_together(world: World) -> None:
    await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    await limit(world, 16)
    wanted = [asks(duration="1h"), asks(2, duration="1h"), asks(duration="2h"), asks(3), asks(tenant="other")]

    made = await reserve_all(world.coordinator.services, [Asking(one) for one in wanted])

    assert [_answer(one) for one in made] == ["placed", "pending", "placed", Code.QUOTA_EXCEEDED, "placed"]
    assert await used(world) == 16


def _answer(one: Made | Exception) -> str:
    if isinstance(one, Problem):
        return one.code
    assert isinstance(one, Made)
    return "placed" if one.admitted.is_due else one.view.state if one.view else "unknown"


async def test_a_repeated_call_is_answered_whatever_the_quota_is_by_now(world: World) -> None:
    await world.join("a1")
    first = await world.reserve(asks(key="k"))
    await limit(world, 1)

    again = await world.reserve(asks(key="k"))

    assert again.id == first.id


async def test_a_repair_changes_no_charge_and_a_failed_one_keeps_it(world: World) -> None:
    """S31: what is committed follows what lives, whatever path it takes."""
    a1, a2, a3 = await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    await limit(world, 16)
    gang = await world.reserve(asks(2, start="+2h"))
    (spare,) = {"a1", "a2", "a3"} - set((await world.nodes_of(gang.id)).split())
    agents = {"a1": a1, "a2": a2, "a3": a3}
    bad = [name for name in agents if name != spare]

    await world.cordon(agents[bad[0]])
    await world.settle()
    assert await world.state(gang.id) == "placed"
    assert await charges(world, gang.id) == [(16_000, False)]
    for name in (bad[1], spare):
        await world.cordon(agents[name])
    await world.wait(HOUR)
    assert await reason(world, gang.id) == "BookingRepairFailed"
    assert await used(world) == 16
    other = await world.reserve(asks(start="+9h"))
    assert other.state == "pending"
    for agent in agents.values():
        await world.uncordon(agent)
    await world.settle()

    assert await world.state(gang.id) == "placed"
    assert await reason(world, other.id) == "quotaExceeded"
    assert await charges(world, gang.id) == [(16_000, False)]


@pytest.mark.parametrize("is_repairing", [False, True])
async def test_a_gang_that_shrinks_gives_its_part_back(world: World, *, is_repairing: bool) -> None:
    agents = await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    await limit(world, 24)
    gang = await world.reserve(asks(3, start="+2h"))
    if is_repairing:
        for agent in agents:
            await world.cordon(agent)
        await world.wait(HOUR)
        assert await reason(world, gang.id) == "BookingRepairFailed"

    await world.coordinator.write(shrink, gang.id, ShrinkRequest(to=1), world.coordinator.index)

    assert await charges(world, gang.id) == [(24_000, True), (8_000, False)]
    assert await used(world) == 8


async def test_an_extension_changes_no_charge(world: World) -> None:
    await world.join("a1")
    await limit(world, 8)
    one = await world.reserve(asks(start="+1h"))

    await world.coordinator.write(extend, one.id, ExtendRequest(by="3h"))

    assert await charges(world, one.id) == [(8_000, False)]


async def test_shares_of_a_gpu_are_charged_as_what_they_are(world: World) -> None:
    """S37: one conversion for quota and preview."""
    a1 = await world.join("a1", gpus=2)
    await world.coordinator.write(cut, a1.node_id, None, 4)
    await limit(world, 0.75)
    wanted = ReservationRequest(tenant_id="acme", devices=[DeviceRequest(device_class="slot", count=3)], duration="1h")

    told = await previewed(world, wanted)
    one = await world.reserve(wanted)
    more = await world.reserve(wanted)

    assert (told.quota_milli, told.quota_limit_milli, told.quota_used_milli) == (750, 750, 0)
    assert await charges(world, one.id) == [(750, False)]
    assert await reason(world, more.id) == "quotaExceeded"


async def previewed(world: World, request: ReservationRequest) -> PreviewView:
    coordinator = world.coordinator
    return await coordinator.database.read(look.preview, world.clock.moment(), request, coordinator.index)


async def test_a_preview_says_what_the_quota_would(world: World) -> None:
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    await limit(world, 16)
    await world.reserve(asks())

    fits, waits, never = [await previewed(world, asks(size)) for size in (1, 2, 3)]

    assert (fits.fits, fits.quota_limit_milli, fits.quota_used_milli) == (True, 16_000, 8_000)
    assert [(one.fits, one.condition and one.condition.reason) for one in (waits, never)] == [
        (False, "quotaExceeded")
    ] * 2


async def test_a_limit_that_is_changed_holds_at_once_and_takes_nothing_away(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await limit(world, 16)
    await world.reserve(asks())
    one = await world.reserve(asks())
    await limit(world, 8)
    assert await used(world) == 16
    await world.coordinator.cancel(one.id)
    await world.settle()
    waiting = await world.reserve(asks())
    assert waiting.state == "pending"

    await world.coordinator.write(remove_quota, QuotaRemoval(tenant_id="acme"))
    await world.settle()

    assert await world.state(waiting.id) == "active"
    told = await world.told(f"quota/{waiting.pool_id}/acme", "quota.changed")
    assert [(one["formerMilli"], one["limitMilli"]) for one in told] == [(None, 16_000), (16_000, 8_000), (8_000, None)]


async def test_setting_the_same_limit_again_changes_nothing(world: World) -> None:
    await limit(world, 0.125)
    before = await world.rows()

    await limit(world, 0.125)

    assert await world.rows() == before


async def test_no_limit_is_forgotten_while_a_coordinator_comes_up(world: World) -> None:
    """S40: the limit is read in the transaction that places, so there is no cold cache."""
    agents = await world.join_all("a1 a2 a3 a4", fabric="fabric-a.1")
    await limit(world, 8)
    for agent in agents:
        await world.cordon(agent)
    waiting = [await world.reserve(asks(duration="9h", key=str(number))) for number in range(12)]
    for agent in agents:
        await world.uncordon(agent)

    await world.restart()
    world.clock.ms += 16 * SECOND
    await world.settle()

    states = [await world.state(one.id) for one in waiting]
    assert sorted(states) == ["active", *["pending"] * 11]
    assert await used(world) == 8


async def test_an_end_that_is_told_twice_late_or_after_a_repair_is_given_back_once(world: World) -> None:
    """S38: the same end again is no second refund."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await limit(world, 16)
    one, other = await world.reserve(asks(start="+1h")), await world.reserve(asks(start="+1h"))
    await world.cordon(world.agents[await world.nodes_of(one.id)])
    await world.settle()

    for _ in range(3):
        await world.coordinator.cancel(one.id)
    await world.wait(2 * HOUR)
    for agent in world.agents.values():
        await world.coordinator.take_report(agent.node_id, agent.next_report())
    await world.settle()

    assert await world.state(other.id) == "ended"
    assert await charges(world, one.id) == await charges(world, other.id) == [(8_000, True)]


async def test_an_occurrence_over_quota_waits_and_its_series_goes_on(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    await limit(world, 8)
    request = SeriesRequest(
        tenant_id="acme",
        devices=[DeviceRequest(count=8)],
        rule="FREQ=DAILY;COUNT=2",
        zone="UTC",
        at="12:00",
        duration="1h",
    )
    await world.coordinator.database.flow(create_series, world.clock.moment(), request)
    await world.settle()

    made = await listed(world)

    assert [state for state, _ in made] == ["placed", "pending"]
    assert made[1][1] == "quotaExceeded"
    await world.wait(27 * HOUR)
    assert [state for state, _ in await listed(world)] == ["ended", "placed"]


async def listed(world: World) -> list[tuple[str, str | None]]:
    views = await world.coordinator.database.read(look.reservations, limit=10)
    views.sort(key=lambda one: one.start or 0)
    return [(one.state, one.condition.reason if one.condition else None) for one in views]


async def test_a_series_of_which_no_occurrence_could_ever_be_is_refused_when_it_is_made(world: World) -> None:
    await world.join("a1")
    await limit(world, 4)
    asked = SeriesRequest(
        tenant_id="acme", devices=[DeviceRequest(count=8)], duration="1h", rule="FREQ=DAILY;COUNT=2", at="22:00"
    )
    before = await world.rows()

    with pytest.raises(Problem, match="may hold 4 at once") as refusal:
        await world.coordinator.database.flow(create_series, world.clock.moment(), asked)

    assert refusal.value.code is Code.QUOTA_EXCEEDED
    assert await world.rows() == before
