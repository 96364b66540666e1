"""Much breaks at once: one alarm, few moves and then none, in the order of the starts, from one look at health."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import select, update

from muster_coordinator.core.model import Entry, Reservation, Shape
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.repair.plan import Repaired, plan_repair
from muster_coordinator.service.repairs import repair
from muster_coordinator.store import read
from muster_coordinator.store.documents import written
from muster_coordinator.store.tables import EVENT, RESERVATION
from tests.support.coordinator_agent import ScriptedAgent
from tests.support.service_world import MINUTE, SECOND, World, asks, start_of


async def storms(world: World) -> list[tuple[str, str | None, str | None]]:
    """Return what was told of storms, in order: began or ended, where, and the mode."""
    (pool,) = await world.coordinator.database.read(read.pools)
    pool_id = pool.id
    kinds = [kind for kind in await world.story(pool_id) if kind != "created"]
    told = {kind: iter(await world.told(pool_id, f"storm.{kind}")) for kind in set(kinds)}
    data = [(kind, next(told[kind])) for kind in kinds]
    assert all(one["next"] for _, one in data)
    return [(kind, one.get("domain"), one.get("mode")) for kind, one in data]


async def fabrics(world: World, **sizes: int) -> None:
    """Let nodes join: `fabrics(world, a=4)` are a1 to a4; past the grace of the first epoch."""
    for letter, size in sizes.items():
        names = " ".join(f"{letter}{number}" for number in range(1, size + 1))
        await world.join_all(names, fabric=f"fabric-{letter}.1")
    await world.wait(10 * MINUTE)


async def fall(world: World, names: str) -> None:
    """Let nodes go silent, and be noticed."""
    for name in names.split():
        world.agents[name].is_up = False
    await world.wait(21 * SECOND)


async def on(world: World, name: str, start: str, tenant: str = "acme") -> str:
    """Book a whole node, of which the request does not know."""
    await world.label(world.agents[name], at=name)
    booked = await world.reserve(asks(start=start, node_selector={"at": name}, tenant=tenant))
    await world.label(world.agents[name], at=None)
    anywhere = update(RESERVATION).where(RESERVATION.c.id == booked.id).values(shape=written(Shape((Entry("gpu", 8),))))
    await world.coordinator.write(lambda connection, _: connection.execute(anywhere) and None)
    assert await world.nodes_of(booked.id) == name
    return booked.id


async def test_a_lost_fabric_is_one_alarm_and_moves_its_bookings_only_at_their_start(world: World) -> None:
    """F16: marks at once, moves one by one; nothing goes to a fabric that is falling, too."""
    await fabrics(world, a=2, b=8, c=4)
    soon, later = await on(world, "a1", "+20m"), await on(world, "a2", "+6h")
    await fall(world, "a1 a2 c1 c2")
    for _ in range(9):
        await world.wait(30 * SECOND)

    assert await storms(world) == [
        ("began", None, "partial"), ("began", "fabric-a.1", "domainLost"), ("began", "fabric-c.1", "partial"),
    ]  # fmt: skip
    for booked, name in ((soon, "a1"), (later, "a2")):
        assert (await world.story(booked), await world.nodes_of(booked)) == (["created", "placed", "at_risk"], name)

    await world.until(start_of(await world.get(soon)) - 15 * MINUTE)
    assert await world.nodes_of(soon) == "a1"


async def test_half_of_a_fabric_moves_what_starts_soon_and_the_rest_when_the_storm_is_over(world: World) -> None:
    await fabrics(world, a=4, b=8)
    soon, later = await on(world, "a1", "+14m"), await on(world, "a2", "+6h")
    await fall(world, "a1 a2")
    await world.wait(2 * MINUTE)
    assert await storms(world) == [("began", "fabric-a.1", "partial")]
    assert (await world.nodes_of(soon))[0] == "b"
    assert await world.nodes_of(later) == "a2"

    for _ in range(9):
        await world.wait(MINUTE)

    assert await storms(world) == [("began", "fabric-a.1", "partial"), ("ended", "fabric-a.1", None)]
    assert await world.nodes_of(later) != "a2"


async def test_when_every_node_is_silent_the_coordinator_takes_itself_to_be_cut_off(world: World) -> None:
    """F17: no booking is marked, moved or given up, no bind times out, and nobody flaps; then all goes on."""
    await fabrics(world, a=2, b=2)
    booked, starts = await on(world, "a1", "+3h"), await on(world, "a2", "+2m")
    await fall(world, "a1 a2 b1 b2")
    for _ in range(20):
        await world.wait(MINUTE)

    assert await storms(world) == [("began", None, "cutOff")]
    assert await world.story(booked) == ["created", "placed"]
    assert (await world.story(starts), await world.nodes_of(starts)) == (["created", "placed", "binding"], "a2")
    assert (await world.reserve(asks())).state == "pending"
    for agent in world.agents.values():
        agent.is_up = True
    await world.settle()

    assert await storms(world) == [("began", None, "cutOff"), ("ended", None, None)]
    assert (await world.state(starts), await world.nodes_of(starts)) == ("active", "a2")
    assert await world.story(booked) == ["created", "placed"]


async def test_nodes_that_return_one_by_one_after_a_cut_keep_their_bookings(world: World) -> None:
    await fabrics(world, a=2, b=2)
    booked = await on(world, "a1", "+3h")
    await fall(world, "a1 a2 b1 b2")
    for _ in range(12):
        await world.wait(MINUTE)

    for name in ("b2", "b1", "a2"):
        world.agents[name].is_up = True
        await world.wait(30 * SECOND)
    assert await world.story(booked) == ["created", "placed"]
    await world.wait(MINUTE)
    await world.wait(21 * SECOND)  # past reconnectGrace and four beats
    assert await world.story(booked) == ["created", "placed", "at_risk"]


async def test_most_of_the_pool_gone_is_dark_and_what_can_start_starts(world: World) -> None:
    await fabrics(world, a=3, b=2)
    well, ill = await on(world, "b1", "+2m"), await on(world, "a1", "+2h")
    await fall(world, "a1 a2 a3")
    await world.wait(2 * MINUTE)

    assert await storms(world) == [("began", None, "poolDark")]
    assert await world.state(well) == "active"
    assert await world.story(ill) == ["created", "placed"]
    for _ in range(9):
        await world.wait(MINUTE)

    assert (await world.story(ill))[:4] == ["created", "placed", "at_risk", "repaired"]
    assert (await world.nodes_of(ill))[0] == "b"


async def test_a_storm_of_faults_is_one_batch_in_the_order_of_the_starts(world: World) -> None:
    """R35, R36: all nodes of two fabrics report a fault at once; whoever starts soonest is helped first."""
    await fabrics(world, a=4, b=4, c=12)
    starts = {f"{letter}{number}": 14 - number for letter in "ab" for number in range(1, 5)}
    booked = {name: await on(world, name, f"+{minutes}m") for name, minutes in starts.items()}
    for name in booked:
        world.agents[name].hold(0)
    await asyncio.gather(*(world.agents[name].report() for name in booked))
    await world.settle()
    for _ in range(14):
        await world.wait(MINUTE)

    told = {name: await world.told(id_, "reservation.repaired") for name, id_ in booked.items()}
    assert all(len(one) == 1 for one in told.values())
    moved = sorted([(await moved_ms(world, id_), starts[name]) for name, id_ in booked.items()])
    # Whose report came first could not know of the others.
    assert [start for _, start in moved[1:]] == sorted(start for _, start in moved[1:])
    assert {await world.state(id_) for id_ in booked.values()} == {"active"}


async def test_many_nodes_that_fall_at_once_have_each_booking_planned_at_most_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R35, smaller: 16 nodes report within an instant, 64 bookings begin on them; their changes are taken together."""
    planned: Counter[str] = Counter()

    def counted(reservation: Reservation, *args: Any, **options: Any) -> Repaired | Refusal:
        planned[reservation.id] += 1
        return plan_repair(reservation, *args, **options)

    monkeypatch.setattr(repair, "plan_repair", counted)
    await fabrics(world, a=4, b=4, c=4, d=4, e=8, f=8, g=8)
    fallen = [agent for name, agent in world.agents.items() if name[0] in "abcd"]
    booked = await crowd(world, fallen, 64)
    world.clock.ms = start_of(await world.get(booked[0]))
    await asyncio.gather(*(agent.report() for agent in world.agents.values() if agent not in fallen))
    for agent in fallen:
        for number in range(8):
            agent.hold(number)
    await asyncio.gather(*(agent.report() for agent in fallen))
    await world.settle()

    assert set(planned) == set(booked)
    assert max(planned.values()) <= 2
    assert {await world.state(id_) for id_ in booked} == {"active"}
    names = [await world.nodes_of(id_) for id_ in booked]
    assert {name[0] for name in names} <= set("efg")


async def crowd(world: World, agents: list[ScriptedAgent], size: int) -> list[str]:
    """Book two GPUs each on these nodes, in ten minutes; the requests do not know of the nodes."""
    for agent in agents:
        await world.label(agent, at="here")
    asked = asks(gpus=2, start="+10m", node_selector={"at": "here"})
    booked = [(await world.reserve(asked)).id for _ in range(size)]
    anywhere = update(RESERVATION).values(shape=written(Shape((Entry("gpu", 2),))))
    await world.coordinator.write(lambda connection, _: connection.execute(anywhere) and None)
    return booked


async def moved_ms(world: World, reservation_id: str) -> int:
    """Return when a reservation was repaired."""
    wanted = select(EVENT.c.at_ms).where(EVENT.c.subject == reservation_id, EVENT.c.type == "reservation.repaired")
    return int(await world.coordinator.database.read(lambda connection: connection.execute(wanted).scalar_one()))


async def test_an_operator_s_order_is_no_storm(world: World) -> None:
    await fabrics(world, a=2, b=4)
    booked = [await on(world, name, "+6h") for name in ("a1", "a2")]

    for name in ("a1", "a2"):
        await world.cordon(world.agents[name])
    await world.settle()

    assert [(await world.nodes_of(one))[0] for one in booked] == ["b", "b"]
    assert await storms(world) == []
