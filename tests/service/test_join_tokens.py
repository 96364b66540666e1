"""A join token lets one host in, once; what is lost on the way may be asked for again, by that host alone."""

import asyncio

import pytest

from muster_coordinator.service.nodes import join_tokens
from muster_coordinator.service.nodes.join_bodies import JoinTokenRequest, JoinTokenView
from muster_shared.errors import Code, Problem
from muster_shared.wire import Credential, Registration
from tests.support.service_world import HOUR, MINUTE, World

DAY = 24 * HOUR
SECRET = join_tokens.PREFIX + "0123456789abcdef"


def host(name: str = "a1", machine: str = "machine-a1", *gpus: str) -> Registration:
    return Registration(name=name, machine_id=machine, agent_version="1", gpus=gpus)


async def allowed(world: World, name: str = "a1", duration: str = "24h", secret: str = SECRET) -> JoinTokenView:
    asked = JoinTokenRequest(node_name=name, duration=duration)
    return await world.coordinator.write(join_tokens.create, asked, secret)


async def joined(world: World, registration: Registration, secret: str = SECRET) -> Credential:
    return await world.coordinator.write(join_tokens.join_by, registration, secret, world.clock.new_secret())


async def state(world: World) -> list[str]:
    views = await world.coordinator.database.read(join_tokens.listed, world.clock.moment(), everything=True)
    return [view.state for view in views]


async def refused(world: World, registration: Registration, secret: str = SECRET) -> str:
    before = await world.rows()
    with pytest.raises(Problem) as refusal:
        await joined(world, registration, secret)
    assert refusal.value.code is Code.UNAUTHENTICATED
    assert await world.rows() == before
    return refusal.value.detail


async def test_a_token_lets_its_host_in_and_is_used_up(world: World) -> None:
    view = await allowed(world)
    assert await state(world) == ["open"]

    credential = await joined(world, host())

    assert await state(world) == ["used"]
    assert await world.story(view.id) == ["allowed", "used"]
    assert await world.story(credential.node_id) == ["joined"]
    assert "was used before" in await refused(world, host(machine="machine-of-a-thief"))


async def test_a_host_whose_answer_was_lost_asks_again_for_a_while(world: World) -> None:
    await allowed(world)
    first = await joined(world, host())
    world.clock.ms += 9 * MINUTE

    again = await joined(world, host())

    assert (again.node_id, again.token == first.token) == (first.node_id, False)
    world.clock.ms += 2 * MINUTE
    assert "was used before" in await refused(world, host())


async def test_it_is_for_one_name_and_one_pool_whatever_the_host_says(world: World) -> None:
    view = await allowed(world)

    assert "is for another host than 'a2'" in await refused(world, host("a2", "machine-a2"))

    credential = await joined(world, host().model_copy(update={"pool": "elsewhere"}))
    (row,) = [row for row in (await world.rows())["node"] if credential.node_id in row]
    assert view.pool_id in row


async def test_what_has_expired_or_was_revoked_or_is_not_known_lets_nobody_in(world: World) -> None:
    one = await allowed(world, duration="1h")
    world.clock.ms += HOUR
    assert "has expired" in await refused(world, host())
    other = await allowed(world, secret=SECRET + "2")
    await world.coordinator.write(join_tokens.revoke, other.id, "wrong host")
    assert "was revoked" in await refused(world, host(), SECRET + "2")
    assert "is not known" in await refused(world, host(), SECRET + "3")
    assert await state(world) == ["revoked", "revoked"]  # a new one for the same host ends the former
    assert one.id < other.id


async def test_one_that_was_used_is_not_revoked_and_one_that_is_not_there_is_told(world: World) -> None:
    view = await allowed(world)
    await joined(world, host())
    for token_id, code in ((view.id, Code.CONFLICT), ("join_nobody", Code.NOT_FOUND)):
        with pytest.raises(Problem) as refusal:
            await world.coordinator.write(join_tokens.revoke, token_id, None)
        assert refusal.value.code is code


async def test_a_clone_that_shows_the_token_too_changes_nothing(world: World) -> None:
    await allowed(world)
    await joined(world, host("a1", "machine-a1", "GPU-1"))
    before = (await world.rows())["node"]

    with pytest.raises(Problem):
        await joined(world, host("a1", "machine-of-the-clone", "GPU-9"))

    assert (await world.rows())["node"] == before


async def test_of_two_hosts_that_show_it_at_once_one_is_let_in(world: World) -> None:
    await allowed(world)

    answers = await asyncio.gather(
        *(joined(world, host(machine=f"machine-{number}")) for number in range(4)), return_exceptions=True
    )

    assert sum(isinstance(answer, Credential) for answer in answers) == 1
    assert len((await world.rows())["node"]) == 1


@pytest.mark.parametrize(("duration", "code"), [("31d", Code.INVALID_INPUT), ("soon", Code.INVALID_INPUT)])
async def test_a_length_that_cannot_be_is_refused(world: World, duration: str, code: Code) -> None:
    with pytest.raises(Problem) as refusal:
        await allowed(world, duration=duration)
    assert refusal.value.code is code


async def test_it_lasts_a_day_where_nothing_is_said(world: World) -> None:
    view = await world.coordinator.write(join_tokens.create, JoinTokenRequest(node_name="a1"), SECRET)

    assert view.expires - view.created == DAY
