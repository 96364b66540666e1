"""What-if foretells what a loss of nodes would do, by the planner that repairs; asking changes nothing."""

from random import Random
from typing import Any

import pytest
from sqlalchemy import Connection, update

from muster_coordinator.service.nodes import operate
from muster_coordinator.service.repairs.whatif import answered, asked
from muster_coordinator.service.repairs.whatif_bodies import FateView, Lost, WhatIfRequest, WhatIfView
from muster_coordinator.store import read
from muster_coordinator.store.tables import RESERVATION
from muster_shared.errors import Code, Problem
from tests.support.service_world import HOUR, World, asks


async def foretold(world: World, *lose: str, **more: Any) -> WhatIfView:
    """Ask; nothing changes, not a byte."""
    before = await world.rows()
    pairs = [text.partition("=") for text in lose]
    request = WhatIfRequest(lose=[Lost(key=key, value=value) for key, _, value in pairs], **more)
    coordinator = world.coordinator
    question = await coordinator.database.read(asked, world.clock.moment(), request, coordinator.index)
    answer = answered(question)
    assert await world.rows() == before
    return answer


def by_id(answer: WhatIfView) -> dict[str, FateView]:
    return {item.reservation_id: item for item in answer.items}


async def cordon_at_once(world: World, names: list[str]) -> None:
    """Take several nodes out before anybody looks at what that breaks."""
    touched: set[str] = set()
    for name in names:
        touched.update(await world.coordinator.write(operate.set_intent, name, "cordoned", None))
    await world.coordinator.services.advance_all(
        await world.coordinator.database.read(read.soonest_first, sorted(touched))
    )


async def cluster(world: World, seed: int) -> list[str]:
    """Make three fabrics of four nodes in two racks, and gangs of many sizes over the next hours; return their ids."""
    chance = Random(seed)
    for number in range(12):
        agent = await world.join(f"n{number:02d}", fabric=f"fabric-{'abc'[number // 4]}.1")
        await world.label(agent, rack=f"r{number % 2}")
    made: list[str] = []
    for _ in range(14):
        size, gpus = chance.choice((1, 1, 2, 3, 4)), chance.choice((2, 4, 8))
        start, hours = chance.randrange(1, 6), chance.randrange(1, 4)
        made.append((await world.reserve(asks(size, gpus=gpus, start=f"+{start}h", duration=f"{hours}h"))).id)
    return made


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("hours", [0, 2])
async def test_what_it_foretells_is_what_then_happens(world: World, seed: int, hours: int) -> None:
    made = await cluster(world, seed)
    chance = Random(seed)
    names = sorted(chance.sample(sorted(world.agents), 3))
    at_ms = world.now_ms + hours * HOUR
    waiting = [one for one in made if await world.state(one) == "pending"]
    answer = await foretold(world, *(f"node={name}" for name in names), at=at_ms)

    await world.until(at_ms - 1) if hours else None
    await cordon_at_once(world, names)

    items = by_id(answer)
    assert answer.lost == names
    for one in made:
        told, now = items.get(one), await world.get(one)
        nodes = sorted(member.node_name for member in now.members)
        if one in waiting or now.state == "ended":
            assert told is None or told.outcome == "survives"
        elif told is None or told.outcome == "survives":
            assert not set(nodes) & set(names) or now.end is None or now.end <= at_ms
        elif told.outcome == "degraded":
            assert now.state == "active"
        elif told.outcome == "fails":
            assert (now.state, nodes) == ("pending", [])
        else:
            assert (now.state, nodes) == ("placed", told.nodes)


async def test_a_scarce_spare_goes_to_the_soonest_then_the_largest_then_the_oldest(world: World) -> None:
    """R36: the order of a storm, foretold."""
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    late = await world.reserve(asks(start="+2h", duration="2h"))
    soon = await world.reserve(asks(start="+1h", duration="2h"))
    names = [await world.nodes_of(late.id), await world.nodes_of(soon.id)]

    answer = await foretold(world, *(f"node={name}" for name in names))

    assert [(item.reservation_id, item.outcome) for item in answer.items] == [(soon.id, "moves"), (late.id, "fails")]
    assert answer.outcomes == {"fails": 1, "moves": 1}
    assert answer.items[1].message.startswith("no node fits: ")
    assert (set(answer.lost), answer.items[0].lost) == (set(names), names[1:])
    assert not set(answer.items[0].nodes) & set(names)


async def test_what_a_failed_gang_leaves_is_there_for_those_after_it(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    gang = await world.reserve(asks(2, start="+1h", duration="2h"))
    single = await world.reserve(asks(start="+3h", duration="1h"))
    here = await world.nodes_of(single.id)

    answer = await foretold(world, f"node={here}")

    assert [item.outcome for item in answer.items] == ["fails", "moves"]
    assert [item.reservation_id for item in answer.items] == [gang.id, single.id]


async def test_only_what_overlaps_the_loss_is_touched(world: World) -> None:
    """Nodes that come back in time, and bookings that are over by then, are no harm."""
    await world.join("a1")
    over = await world.reserve(asks(start="+1h"))
    within = await world.reserve(asks(start="+2h"))
    later = await world.reserve(asks(start="+4h"))

    answer = await foretold(world, "node=a1", at="+2h", duration="2h")

    told = {id_: (item.outcome, item.message) for id_, item in by_id(answer).items()}
    assert told[over.id] == ("survives", "it is over by then")
    assert told[within.id][0] == "fails"
    assert told[later.id] == ("survives", "it begins once they are back")
    assert (answer.at, answer.until) == (world.now_ms + 2 * HOUR, world.now_ms + 4 * HOUR)


@pytest.mark.parametrize(
    ("wish", "outcome", "words"),
    [
        ("notify", "degraded", "its owner is told"),
        ("replace", "degraded", "is replaced once"),
        ("release", "ends", "as it asked to"),
    ],
)
async def test_what_runs_is_not_moved_but_fares_as_it_asked_to(
    world: World, wish: str, outcome: str, words: str
) -> None:
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    gang = await world.reserve(asks(2))
    await world.settle()

    def wished(connection: Connection) -> None:
        connection.execute(update(RESERVATION).where(RESERVATION.c.id == gang.id).values(on_member_loss=wish))

    await world.coordinator.database.write(wished)
    name = gang.members[0].node_name

    item = (await foretold(world, f"node={name}")).items[0]

    assert (item.state, item.outcome, item.lost, item.nodes) == (
        "active",
        outcome,
        [name],
        sorted(one.node_name for one in gang.members),
    )
    assert words in item.message


async def test_what_will_run_by_then_is_taken_to_run(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    begun = await world.reserve(asks(start="+1h", duration="2h"))
    name = await world.nodes_of(begun.id)

    outcomes = [(await foretold(world, f"node={name}", at=at)).items[0].outcome for at in ("+59m", "+1h", "+61m")]

    assert outcomes == ["moves", "moves", "degraded"]


async def test_nodes_are_lost_by_label_and_the_others_are_counted(world: World) -> None:
    for name, rack in [("a1", "r1"), ("a2", "r1"), ("b1", "r2")]:
        await world.label(await world.join(name, fabric="fabric-a.1"), rack=rack)
    made = [await world.reserve(asks(start="+1h")) for _ in range(3)]
    beside = next(one.id for one in made if one.members[0].node_name == "b1")

    answer = await foretold(world, "rack=r1")

    assert (answer.lost, answer.untouched, beside in by_id(answer)) == (["a1", "a2"], 1, False)
    assert [item.outcome for item in answer.items] == ["fails", "fails"]


@pytest.mark.parametrize(
    ("lose", "more", "code", "words"),
    [
        ("node=zz", {}, Code.NOT_FOUND, "no node named 'zz'; `muster nodes`"),
        ("rack=r9", {}, Code.NOT_FOUND, "no node with rack 'r9'"),
        ("node=a1", {"pool_id": "zz"}, Code.NOT_FOUND, "there is no pool 'zz'"),
        ("node=a1", {"at": 5}, Code.INVALID_INPUT, "has passed"),
        ("node=a1", {"at": "soon"}, Code.INVALID_INPUT, "not an instant"),
        ("node=a1", {"duration": "0s"}, Code.INVALID_INPUT, "out of range"),
        ("node=a1", {"duration": "2930000d"}, Code.INVALID_INPUT, "9999"),
    ],
    ids=str,
)
async def test_a_question_that_cannot_be_meant_is_refused(
    world: World, lose: str, more: dict[str, Any], code: Code, words: str
) -> None:
    await world.join("a1")

    with pytest.raises(Problem) as problem:
        await foretold(world, lose, **more)

    assert problem.value.code is code
    assert words in problem.value.detail
