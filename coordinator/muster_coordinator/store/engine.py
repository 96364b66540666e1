"""All differences of SQLite and PostgreSQL, each with its reason, and the two ways to run a transaction body.

A body is a synchronous function over a connection. The shell awaits it through `Database`; a simulation calls it
inline on a synchronous engine that `prepared` has given the same settings.
"""

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TextIO, TypeVar

from sqlalchemy import Connection, Engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

P = ParamSpec("P")
R = TypeVar("R")

_BUSY_MS: Final = 5_000  # the longest transaction takes a fraction of it; whoever waits longer should be told
_OVERLAP: Final = "muster_booking_overlap"
"""What both guards call themselves: the exclusion constraint's name, the triggers' message."""


class DatabaseInUseError(Exception):
    """Another process has this SQLite file: two writers could lose committed work (SQLite 3.7.0 to 3.51.2)."""


class Database:
    """The asynchronous door to one database."""

    def __init__(self, url: str) -> None:
        """Open the database; for a SQLite file, take the lock beside it for the life of the process.

        Args:
            url: `sqlite+aiosqlite:///path` or `postgresql+asyncpg://...`.

        Raises:
            DatabaseInUseError: Another process holds the SQLite file.
        """
        parsed = make_url(url)
        self.is_sqlite: Final = parsed.get_backend_name() == "sqlite"
        self._lock = _file_lock(parsed.database) if self.is_sqlite else None
        if not self.is_sqlite:
            self._writer = create_async_engine(parsed, pool_size=10, isolation_level="READ COMMITTED")
            self._reader = self._writer
            prepared(self._writer.sync_engine)
        elif parsed.database in {None, "", ":memory:"}:
            self._writer = create_async_engine(parsed, poolclass=StaticPool)
            self._reader = self._writer
            prepared(self._writer.sync_engine)
        else:
            # One write connection that also checkpoints; readers may not write. Source: facts on the WAL-reset race.
            self._writer = create_async_engine(parsed, pool_size=1, max_overflow=0)
            self._reader = create_async_engine(parsed, pool_size=4, max_overflow=0)
            prepared(self._writer.sync_engine)
            prepared(self._reader.sync_engine, read_only=True)

    @property
    def engine(self) -> AsyncEngine:
        """The engine that writes, for migrations."""
        return self._writer

    async def write(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a body in one transaction: committed when it returns, undone when it raises or is cancelled."""
        async with self._writer.begin() as connection:
            return await connection.run_sync(lambda sync: body(sync, *args, **kwargs))

    async def read(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a body that only reads, in a transaction of its own beside the writer's."""
        async with self._reader.begin() as connection:
            return await connection.run_sync(lambda sync: body(sync, *args, **kwargs))

    async def flow(self, body: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a body that begins and commits its own transactions, one after the other, on one connection."""
        async with self._writer.connect() as connection:
            return await connection.run_sync(lambda sync: body(sync, *args, **kwargs))

    async def close(self) -> None:
        """Give everything back."""
        await self._writer.dispose()
        if self._reader is not self._writer:
            await self._reader.dispose()
        if self._lock is not None:
            self._lock.close()


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
    lock = Path(f"{path}.lock").open("w")  # noqa: SIM115 - held for the life of the process
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise DatabaseInUseError(
            f"{path} is in use by another process; one coordinator serves one SQLite file"
        ) from None
    return lock
