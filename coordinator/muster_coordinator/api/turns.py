"""Takes what is asked of one thing turn by turn; whatever has come in meanwhile goes together in the next turn."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

_TOGETHER_MAX: Final = 32  # in one turn: the first of them waits for the last


@dataclass(eq=False, slots=True)
class _Asked(Generic[Q, A]):
    question: Q
    answer: "asyncio.Future[A]"


class Turns(Generic[Q, A]):
    """Lets those who place in one pool go one after the other in this process, and those who wait go together.

    Their commits are serial anyway, by the pool's row. Without turns all of them would plan on the same pool, want the
    same nodes, and lose to each other round after round.
    """

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: dict[str, deque[_Asked[Q, A]]] = {}
        self._turns: set[asyncio.Task[None]] = set()

    async def ask(self, pool: str, question: Q, serve: Callable[[list[Q]], Awaitable[list[A]]]) -> A:
        """Return the answer to one question, in its turn.

        Args:
            pool: By id or name: each has turns of its own.
            question: Whose caller may go away: others of its turn are answered all the same.
            serve: Answers several questions, in their order. What it raises, all of them are told.
        """
        line = self._waiting.get(pool)
        if line is not None:
            asked = _Asked[Q, A](question, asyncio.get_running_loop().create_future())
            line.append(asked)
            return await asked.answer
        self._waiting[pool] = line = deque[_Asked[Q, A]]()
        try:
            (answer,) = await serve([question])
            return answer
        finally:
            self._hand_on(pool, line, serve)

    def _hand_on(self, pool: str, line: deque[_Asked[Q, A]], serve: Callable[[list[Q]], Awaitable[list[A]]]) -> None:
        """Let those go who came in meanwhile, in a task of its own: the caller, whose turn is over, may go away."""
        if not line:
            del self._waiting[pool]
            return
        turn = asyncio.create_task(self._take(pool, line, serve), name=f"turns of {pool}")
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)

    async def _take(self, pool: str, line: deque[_Asked[Q, A]], serve: Callable[[list[Q]], Awaitable[list[A]]]) -> None:
        try:
            while line:
                together = [line.popleft() for _ in range(min(len(line), _TOGETHER_MAX))]
                await _answer([one for one in together if not one.answer.done()], serve)
        finally:
            del self._waiting[pool]
            for one in line:
                one.answer.cancel()


async def _answer(together: list[_Asked[Q, A]], serve: Callable[[list[Q]], Awaitable[list[A]]]) -> None:
    """Answer those who wait; a caller who has gone away meanwhile wants no answer."""
    try:
        answers = await serve([one.question for one in together]) if together else []
    except asyncio.CancelledError:
        for one in together:
            one.answer.cancel()
        raise
    except Exception as error:  # noqa: BLE001 - each caller words it, and logs it, as its own
        for one in together:
            if not one.answer.done():
                one.answer.set_exception(error)
        return
    for one, answer in zip(together, answers, strict=True):
        if not one.answer.done():
            one.answer.set_result(answer)
