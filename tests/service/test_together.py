"""Requests that wait for their turn are placed together: each answer is what it would have got alone, in that order."""

import asyncio
from typing import Any

import pytest

from muster_coordinator.api.admission import reserve_all
from muster_coordinator.api.services import Made
from muster_coordinator.service import draft as drafts
from muster_coordinator.service.admit import reserve
from muster_coordinator.service.bodies import ReservationRequest, ReservationView
from muster_coordinator.service.together import Asking, NotAsPlannedError
from muster_coordinator.store.tables import POOL
from muster_shared.errors import Code, Problem
from tests.support.service_world import World, asks

VERSION = [column.name for column in POOL.columns].index("version")


async def together(world: World, *requests: ReservationRequest) -> list[ReservationView | Code]:
    """Ask all at once, so that they share a turn."""
    answers = await asyncio.gather(*(world.reserve(request) for request in requests), return_exceptions=True)
    found: list[ReservationView | Code] = []
    for answer in answers:
        if isinstance(answer, Problem):
            found.append(answer.code)
        else:
            assert isinstance(answer, ReservationView)
            found.append(answer)
    return found


def told(answers: list[ReservationView | Code]) -> list[str]:
    return [answer if isinstance(answer, Code) else answer.state for answer in answers]


async def test_who_came_first_is_placed_first_and_the_others_see_what_is_left(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")

    answers = await together(world, *(asks(start="+1h", tenant=f"t{number}") for number in range(4)))

    assert told(answers) == ["placed", "placed", "pending", "pending"]
    assert len({one.members[0].node_id for one in answers if isinstance(one, ReservationView) and one.members}) == 2
    refused = answers[2]
    assert isinstance(refused, ReservationView)
    assert refused.condition is not None
    assert refused.condition.reason == "doesNotFit"


async def test_all_of_a_turn_are_one_step_of_the_pool(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    before = (await world.rows())["pool"][0][VERSION]

    await together(world, *(asks(gpus=2, start="+1h", tenant=f"t{number}") for number in range(5)))

    # The first goes alone, since nobody was there to wait for; the other four together.
    assert (await world.rows())["pool"][0][VERSION] - before <= 2


async def test_a_request_that_is_none_is_told_so_and_the_others_are_placed(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")

    answers = await together(world, asks(start="+1h"), asks(duration="500d"), asks(start="+1h", tenant="other"))

    assert told(answers) == ["placed", Code.INVALID_INPUT, "placed"]


async def test_an_unknown_pool_is_told_to_everybody_who_named_it(world: World) -> None:
    answers = await together(world, asks(pool_id="nowhere"), asks(pool_id="nowhere"))

    assert told(answers) == [Code.NOT_FOUND, Code.NOT_FOUND]


async def test_a_key_that_comes_twice_in_one_turn_makes_one_reservation(world: World) -> None:
    """R51: the same key, at once."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    same = asks(start="+1h", key="k")

    answers = await together(world, asks(start="+5h"), same, same, asks(start="+2h", key="k"), asks(start="+3h"))

    views = [one for one in answers if isinstance(one, ReservationView)]
    assert told(answers) == ["placed", "placed", "placed", Code.IDEMPOTENCY_MISMATCH, "placed"]
    assert views[1].id == views[2].id
    assert len({one.id for one in views}) == 3


async def test_a_replay_is_answered_beside_new_requests(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    first = await world.reserve(asks(start="+1h", key="k"))

    answers = await together(world, asks(start="+2h"), asks(start="+1h", key="k"), asks(start="+3h"))

    assert told(answers) == ["placed", "placed", "placed"]
    assert isinstance(answers[1], ReservationView)
    assert answers[1].id == first.id


async def test_what_begins_at_once_is_carried_on_beside_what_waits(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")

    answers = await together(world, asks(), asks(start="+2h"), asks(tenant="other"), asks(tenant="third"))

    assert told(answers) == ["binding", "placed", "binding", "pending"]


async def test_a_turn_that_was_planned_on_an_older_pool_goes_one_by_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    coordinator = world.coordinator
    database, stolen = coordinator.database, list[str]()
    write = database.write

    async def overtaken(body: Any, *args: Any) -> Any:
        if not stolen:  # between the plan and its commit
            faster = asks(start="+1h", tenant="faster")
            made = await database.flow(reserve, world.clock.moment(), faster, coordinator.index)
            stolen.append(made.reservation_id)
        return await write(body, *args)

    monkeypatch.setattr(database, "write", overtaken)
    made = await reserve_all(
        coordinator.services, [Asking(asks(start="+1h")), Asking(asks(start="+1h", tenant="other"))]
    )

    assert [one.view.state for one in made if isinstance(one, Made) and one.view] == ["placed", "pending"]
    assert await world.state(stolen[0]) == "placed"


async def test_what_one_of_a_turn_fails_on_is_nothing_to_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    read = drafts.drafted

    def stumbling(request: ReservationRequest, *args: Any) -> drafts.Draft:
        if request.tenant_id == "odd":
            raise ZeroDivisionError
        return read(request, *args)

    monkeypatch.setattr(drafts, "drafted", stumbling)
    asked = [asks(start="+1h"), asks(start="+1h", tenant="odd"), asks(start="+1h", tenant="other")]
    made = await reserve_all(world.coordinator.services, [Asking(one) for one in asked])

    assert [one.view.state if isinstance(one, Made) and one.view else type(one) for one in made] == [
        "placed",
        ZeroDivisionError,
        "placed",
    ]


async def test_who_comes_before_a_failure_of_the_database_hears_that_it_was_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    database, flows = world.coordinator.database, list[int]()
    flow = database.flow

    async def refused(*_args: Any) -> Any:
        raise NotAsPlannedError

    async def failing(body: Any, *args: Any) -> Any:
        flows.append(1)
        if len(flows) == 2:
            raise OSError("the disk is full")
        return await flow(body, *args)

    monkeypatch.setattr(database, "write", refused)
    monkeypatch.setattr(database, "flow", failing)
    made = await reserve_all(world.coordinator.services, [Asking(asks(start=f"+{hours}h")) for hours in (1, 3, 5)])

    assert [type(one) for one in made] == [Made, OSError, Made]
