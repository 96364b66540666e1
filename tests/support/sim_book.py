"""The database of a simulated system: one SQLite file, entered by one at a time, watched at every commit."""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection

from muster_coordinator.service.sweep import Leadership
from muster_coordinator.store import migrate
from muster_coordinator.store.engine import Database, prepared
from tests.support.invariants import Watch
from tests.support.sim_kernel import Kernel
from tests.support.truth import Truth

P = ParamSpec("P")
R = TypeVar("R")

_WATCHED = tuple(
    f"{verb} {table}"
    for verb in ("UPDATE", "INSERT INTO", "DELETE FROM")
    for table in ("reservation", "allocation", "booking", "event")
)


class Book:
    """The file, and what looks at it.

    Args:
        kernel: Of the run.
        folder: Where the file is made.
        truth: What agents really exposed.
    """

    def __init__(self, kernel: Kernel, folder: Path, truth: Truth) -> None:
        self.kernel = kernel
        self.watch = Watch(truth)
        self.on_begin: Callable[[], None] = lambda: None
        self.on_rev: Callable[[], None] = lambda: None
        path = folder / "muster.db"
        path.write_bytes(_migrated())
        self.engine: Engine = create_engine(f"sqlite:///{path}", pool_size=8, max_overflow=-1)
        # Before BEGIN: whoever is held up here holds no lock.
        event.listen(self.engine, "begin", self._begins)
        prepared(self.engine)
        event.listen(self.engine, "connect", _hurry)
        event.listen(self.engine, "before_cursor_execute", self._executes)
        event.listen(self.engine, "commit", self._commits)
        event.listen(self.engine, "rollback", self._rolls_back)
        self._is_written = self._is_rev = False
        self.leadership: Leadership | None = None  # of the transaction that is open

    def _begins(self, _connection: Connection) -> None:
        self.on_begin()
        self._is_written = self._is_rev = False
        self.leadership = None

    def _executes(self, _connection: Connection, _cursor: object, statement: str, *_: Any) -> None:
        self._is_written |= statement.startswith(_WATCHED)
        self._is_rev |= statement.startswith("UPDATE node SET rev")

    def _commits(self, connection: Connection) -> None:
        # The transaction is whole and nobody else is inside: what is seen here is what others see next.
        if self._is_rev:
            self.on_rev()
        self.kernel.violations += self._led(connection)
        if self._is_written:
            self.kernel.violations += self.watch.check(connection, self.kernel.now_ms)
            self.kernel.seen["checkedCommit"] += 1

    def _led(self, connection: Connection) -> Iterator[str]:
        if self.leadership is None:
            return
        epoch = connection.exec_driver_sql(
            f"SELECT epoch FROM lease WHERE pool_id = '{self.leadership.pool_id}'"
        ).scalar()
        if epoch != self.leadership.epoch:
            yield f"I31 {self.leadership.holder} commits under epoch {self.leadership.epoch}, and it is {epoch}"

    def _rolls_back(self, _connection: Connection) -> None:
        if sys.exc_info()[0] is None:
            self.kernel.seen["lostRace"] += 1  # nothing failed: a commit found its plan outdated and plans again


class SimDatabase(Database):
    """The coordinator's door to the book: its calls never wait, since tasks are held up inside."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._engine = book.engine

    async def write(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        with self._engine.begin() as connection:
            self._book.leadership = next((one for one in args if isinstance(one, Leadership)), None)
            return body(connection, *args, **kwargs)

    async def read(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        with self._engine.begin() as connection:
            return body(connection, *args, **kwargs)

    async def flow(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        task = self._book.kernel.task
        assert task is not None
        task.is_flow = True
        try:
            with self._engine.connect() as connection:
                return body(connection, *args, **kwargs)
        finally:
            task.is_flow = False


@cache
def _migrated() -> bytes:
    """Return an empty database, migrated once for all runs."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        engine = prepared(create_engine(f"sqlite:///{path}"))
        with engine.begin() as connection:
            migrate.upgrade(connection)
        engine.dispose()
        return path.read_bytes()


def _hurry(connection: DBAPIConnection, _record: object) -> None:
    # Nobody pulls the plug of a simulated machine.
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=OFF")
    cursor.close()
