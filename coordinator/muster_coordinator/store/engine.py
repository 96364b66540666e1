"""All differences of SQLite and PostgreSQL, each with its reason, and the two ways to run a transaction body.

A body is a synchronous function over a connection. The shell awaits it through `Database`; a simulation calls it
inline on a synchronous engine that `prepared` has given the same settings.
"""

import asyncio
import copy
import fcntl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Protocol, TextIO, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

P = ParamSpec("P")
R = TypeVar("R")

_BUSY_MS: Final = 5_000  # the longest transaction takes a fraction of it; whoever waits longer should be told
_TRIES: Final = 3  # of a transaction that PostgreSQL broke off for the good of another
_PASSING: Final = frozenset({"40P01", "40001", "55P03"})
"""Deadlock, serialization failure, lock time-out. Source: PostgreSQL's manual, appendix A; facts F11."""

_OVERLAP: Final = "muster_booking_overlap"
"""What both guards call themselves: the exclusion constraint's name, the triggers' message."""


class Watcher(Protocol):
    """Looks on while bodies write, inside their transactions."""

    def watching(self, connection: Connection) -> AbstractContextManager[None]:
        """Enclose a body; what is written here is committed with it, or undone with it."""
        ...

    def committed(self) -> None:
        """Learn that the last transaction stands."""
        ...


class DatabaseInUseError(Exception):
    """Another process has this SQLite file: two writers could lose committed work (SQLite 3.7.0 to 3.51.2)."""


class Database:
    """The asynchronous door to one database."""

    def __init__(self, url: str) -> None:
        """Open the database; for a SQLite file, take the lock beside it for the life of the process.

        Args:
            url: `sqlite:///path` or `postgresql+asyncpg://...`.

        Raises:
            DatabaseInUseError: Another process holds the SQLite file.
        """
        parsed = make_url(url)
        self._watcher: Watcher | None = None
        self.is_sqlite: Final = parsed.get_backend_name() == "sqlite"
        self._lock = _file_lock(parsed.database) if self.is_sqlite else None
        self._writer: _Threads | _Loop
        self._reader: _Threads | _Loop
        self._still: _Threads | _Loop
        if self.is_sqlite:
            # One write connection that also checkpoints; readers may not write. Source: facts on the WAL-reset race.
            self._writer = _Threads(parsed, connections=1, read_only=False)
            self._reader = _Threads(parsed, connections=2, read_only=True)
            self._still = self._reader
        else:
            self._writer = _Loop.of(parsed)
            # Read committed sees each statement for itself anyway: a transaction around reads buys two round trips.
            self._reader = self._writer.isolated("AUTOCOMMIT")
            self._still = self._writer.isolated("REPEATABLE READ")

    @property
    def engine(self) -> Engine:
        """The engine that writes, for listeners; only this class connects with it."""
        return self._writer.engine

    async def write(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a body in one transaction: committed when it returns, undone when it raises.

        A caller that is cancelled meanwhile does not know which: on SQLite the body runs to its end.
        """
        watcher = self._watcher
        if watcher is None:
            return await self._writer.begin(lambda connection: body(connection, *args, **kwargs))

        def watched(connection: Connection) -> R:
            with watcher.watching(connection):
                return body(connection, *args, **kwargs)

        result = await self._writer.begin(watched)
        watcher.committed()
        return result

    def watched(self, watcher: Watcher | None) -> "Database":
        """Return the same door, with somebody who looks on at each `write`, or with nobody. Flows go unwatched."""
        twin = copy.copy(self)
        twin._watcher = watcher  # noqa: SLF001 - of the same class
        return twin

    async def read(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a body that only reads, in a transaction of its own beside the writer's."""
        return await self._reader.begin(lambda connection: body(connection, *args, **kwargs))

    async def read_still(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a body that only reads and whose statements must all see the same moment."""
        return await self._still.begin(lambda connection: body(connection, *args, **kwargs))

    async def flow(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a body that begins and commits its own transactions, one after the other, on one connection."""
        return await self._writer.connect(lambda connection: body(connection, *args, **kwargs))

    async def close(self) -> None:
        """Give everything back."""
        await self._writer.close()
        if self.is_sqlite:
            await self._reader.close()
        if self._lock is not None:
            self._lock.close()


class _Threads:
    """SQLite: a body runs whole in a thread. A hop for each body costs half of a hop for each statement."""

    def __init__(self, url: URL, *, connections: int, read_only: bool) -> None:
        engine = create_engine(url, pool_size=connections, max_overflow=0)
        self.engine = prepared(engine, read_only=read_only)
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="sqlite")

    async def begin(self, body: Callable[[Connection], R]) -> R:
        def work() -> R:
            with self.engine.begin() as connection:
                return body(connection)

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def connect(self, body: Callable[[Connection], R]) -> R:
        def work() -> R:
            with self.engine.connect() as connection:
                return body(connection)

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)  # what runs is finished first
        self.engine.dispose()


class _Loop:
    """PostgreSQL: a body runs on the event loop, which serves others while the server works."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self.engine = engine.sync_engine

    @classmethod
    def of(cls, url: URL) -> "_Loop":
        return cls(create_async_engine(url, pool_size=10, isolation_level="READ COMMITTED"))

    def isolated(self, level: str) -> "_Loop":
        """Return the same connections at another isolation level."""
        return _Loop(self._engine.execution_options(isolation_level=level))

    async def begin(self, body: Callable[[Connection], R]) -> R:
        for _ in range(_TRIES - 1):
            try:
                return await self._begin(body)
            except DBAPIError as error:
                if not _is_passing(error):
                    raise
        return await self._begin(body)

    async def _begin(self, body: Callable[[Connection], R]) -> R:
        async with self._engine.begin() as connection:
            return await connection.run_sync(body)

    async def connect(self, body: Callable[[Connection], R]) -> R:
        async with self._engine.connect() as connection:
            return await connection.run_sync(body)

    async def close(self) -> None:
        await self._engine.dispose()


def prepared(engine: Engine, *, read_only: bool = False) -> Engine:
    """Give an engine the settings without which our transactions would not be transactions."""
    if engine.dialect.name != "sqlite":
        return engine

    @event.listens_for(engine, "connect")
    def _on_connect(connection: DBAPIConnection, _record: object) -> None:  # pyright: ignore[reportUnusedFunction] - SQLAlchemy calls it
        # The driver's own BEGIN comes too late: savepoints and DDL would survive a rollback.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            f"busy_timeout={_BUSY_MS}",
            "foreign_keys=ON",
            "synchronous=FULL",  # acknowledged means durable, power loss included
            f"query_only={'ON' if read_only else 'OFF'}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction] - SQLAlchemy calls it
        # A deferred BEGIN that reads before it writes fails at once under another writer, whatever the time-out.
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _is_passing(error: DBAPIError) -> bool:
    """Tell whether the same transaction may well succeed when it is tried again at once: nothing of it was stored."""
    return getattr(error.orig, "sqlstate", None) in _PASSING


def is_overlap(error: DBAPIError) -> bool:
    """Tell whether the database refused a booking because an atom is taken in that window."""
    return _OVERLAP in str(error.orig)


def missing_guards(connection: Connection) -> list[str]:
    """Return the guards against double booking that this database lacks: with any missing it must not be served."""
    if connection.dialect.name == "sqlite":
        wanted = {f"{_OVERLAP}_insert", f"{_OVERLAP}_update"}
        found = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'"))
    else:
        wanted = {_OVERLAP}
        found = connection.execute(text("SELECT conname FROM pg_constraint WHERE contype = 'x' AND convalidated"))
    return sorted(wanted - set(found.scalars()))


def _file_lock(path: str | None) -> TextIO | None:
    if path is None or path in {"", ":memory:"}:
        return None
    real = Path(path).resolve()  # two names of one file are one file
    lock = Path(f"{real}.lock").open("w")  # noqa: SIM115 - held for the life of the process
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise DatabaseInUseError(
            f"{path} is in use by another process; one coordinator serves one SQLite file"
        ) from None
    return lock
