"""What is asked of one pool goes turn by turn; what has come in meanwhile goes together, and nobody hurts another."""

import asyncio

import pytest

from muster_coordinator.api.turns import Turns


class Scene:
    """Answers with squares, once it is let; `turns` keeps what went together."""

    def __init__(self) -> None:
        self.turns: list[list[int]] = []
        self.gate = asyncio.Event()

    async def serve(self, numbers: list[int]) -> list[int]:
        self.turns.append(numbers)
        await self.gate.wait()
        if 13 in numbers:
            raise ValueError("thirteen")
        return [number * number for number in numbers]


async def begun(count: int) -> None:
    """Let tasks that were made run until they wait."""
    for _ in range(3 * count):
        await asyncio.sleep(0)


async def test_who_waits_meanwhile_goes_together_in_the_next_turn_and_gets_its_own_answer() -> None:
    scene, turns = Scene(), Turns[int, int]()
    asked = [asyncio.create_task(turns.ask("pool", number, scene.serve)) for number in (2, 3, 4)]
    await begun(3)
    asked.append(asyncio.create_task(turns.ask("pool", 5, scene.serve)))
    await begun(1)
    scene.gate.set()

    assert await asyncio.gather(*asked) == [4, 9, 16, 25]
    assert scene.turns == [[2], [3, 4, 5]]


async def test_pools_do_not_wait_for_each_other() -> None:
    scene, turns = Scene(), Turns[int, int]()
    asked = [asyncio.create_task(turns.ask(pool, 2, scene.serve)) for pool in ("one", "other")]
    await begun(2)

    assert scene.turns == [[2], [2]]
    scene.gate.set()
    assert await asyncio.gather(*asked) == [4, 4]


async def test_a_caller_that_goes_away_takes_nobody_with_it() -> None:
    scene, turns = Scene(), Turns[int, int]()
    first, gone, third = (asyncio.create_task(turns.ask("pool", number, scene.serve)) for number in (2, 3, 4))
    await begun(3)
    first.cancel()  # while it is being answered
    gone.cancel()
    await begun(2)
    scene.gate.set()

    assert await third == 16
    assert first.cancelled()
    assert gone.cancelled()


async def test_a_turn_that_fails_tells_all_of_its_own_and_the_next_goes_on() -> None:
    scene, turns = Scene(), Turns[int, int]()
    first = asyncio.create_task(turns.ask("pool", 3, scene.serve))
    await begun(1)
    failing = [asyncio.create_task(turns.ask("pool", number, scene.serve)) for number in (13, 2)]
    await begun(2)
    scene.gate.set()

    answers = await asyncio.gather(*failing, return_exceptions=True)
    assert await first == 9
    assert {type(answer) for answer in answers} == {ValueError}
    assert await turns.ask("pool", 5, scene.serve) == 25


async def test_no_turn_takes_more_than_is_good_for_the_first_of_it() -> None:
    scene, turns = Scene(), Turns[int, int]()
    asked = [asyncio.create_task(turns.ask("pool", number, scene.serve)) for number in range(100, 180)]
    await begun(2)
    scene.gate.set()

    assert await asyncio.gather(*asked) == [number * number for number in range(100, 180)]
    assert list(map(len, scene.turns)) == [1, 32, 32, 15]


async def test_what_was_left_behind_after_a_turn_does_not_hold_up_the_next() -> None:
    scene, turns = Scene(), Turns[int, int]()
    scene.gate.set()

    assert await turns.ask("pool", 2, scene.serve) == 4
    assert await turns.ask("pool", 3, scene.serve) == 9
    with pytest.raises(ValueError, match="thirteen"):
        await turns.ask("pool", 13, scene.serve)
