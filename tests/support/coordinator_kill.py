"""A coordinator's database that dies at a chosen commit, as a process does: before it, or right after it."""

from collections.abc import Callable
from typing import Concatenate, Literal, ParamSpec, TypeVar

from sqlalchemy import Connection, event

from muster_coordinator.store.engine import Database
from tests.support.coordinator import hurried

P = ParamSpec("P")
R = TypeVar("R")

When = Literal["before", "after"]


class KilledError(Exception):
    """The process is gone. Whoever asked hears nothing more of it."""


class MortalDatabase(Database):
    """Counts the commits that wrote something, and dies once at the one it was told of."""

    kill_at = 0  # the number of a commit, from 1; 0 lives on
    when: When = "before"
    commits = 0
    dead = False

    async def write(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a body; the answer is lost where the process dies after its commit."""
        return self._survived(await super().write(body, *args, **kwargs))

    async def flow(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a flow; the answer is lost where the process dies after its last commit."""
        return self._survived(await super().flow(body, *args, **kwargs))

    def _survived(self, answer: R) -> R:
        if self.dead:
            raise KilledError
        return answer


def mortal(url: str, kill_at: int, when: When) -> MortalDatabase:
    """Open a database that dies at its `kill_at`-th commit."""
    database = hurried(MortalDatabase(url))
    database.kill_at = kill_at
    database.when = when
    engine = database.engine

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if database.dead:
            raise KilledError
        connection.info["wrote"] = False

    @event.listens_for(engine, "before_cursor_execute")
    def _execute(connection: Connection, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            connection.info["wrote"] = True

    @event.listens_for(engine, "commit")
    def _commit(connection: Connection) -> None:
        if not connection.info.get("wrote"):
            return
        database.commits += 1
        if database.commits == database.kill_at:
            database.dead = True
            if database.when == "before":
                raise KilledError

    return database
