"""Databases for the coordinator, on both engines: empty ones, and copies of one that was migrated once."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, event, select
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.util import await_only

from muster_coordinator.store import migrate
from muster_coordinator.store.engine import Database
from muster_coordinator.store.ledger_tables import METADATA
from tests.support.postgres import Cluster

ENGINES = ("sqlite", "postgresql")

D = TypeVar("D", bound=Database)
R = TypeVar("R")
Rows = dict[str, list[tuple[Any, ...]]]


def door(url: str) -> Database:
    """Open a database for a test."""
    return hurried(Database(url))


def hurried(database: D) -> D:
    """Let SQLite not wait for the disk: no test's file need survive a power cut."""
    if database.is_sqlite:

        @event.listens_for(database.engine, "connect")
        def _hurry(connection: DBAPIConnection, _record: object) -> None:
            cursor = connection.cursor()
            cursor.execute("PRAGMA synchronous=OFF")
            cursor.close()

    return database


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    """Open a database for the length of a block."""
    database = door(url)
    try:
        yield database
    finally:
        await database.close()


class Parked:
    """Stops a body inside its transaction until it may go on, on either engine."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._on_loop = asyncio.Event()
        self._in_thread = threading.Event()

    def stop(self, connection: Connection) -> None:
        """Call it in the body."""
        if connection.dialect.name == "sqlite":
            self._loop.call_soon_threadsafe(self.stopped.set)
            self._in_thread.wait()
        else:
            self.stopped.set()
            await_only(self._on_loop.wait())

    def go_on(self) -> None:
        """Let the body end."""
        self._on_loop.set()
        self._in_thread.set()


def rows(connection: Connection) -> Rows:
    """Return everything that is stored, so that two moments can be compared byte for byte."""
    return {
        table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
        for table in METADATA.sorted_tables
    }


def in_own_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end, leaving the test's event loop as it is."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


async def _migrated(url: str) -> None:
    async with opened(url) as database:
        await database.write(migrate.upgrade)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file that nobody has open."""
    path = tmp_path_factory.mktemp("template") / "muster.db"
    in_own_loop(_migrated(f"sqlite:///{path}"))
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_cluster: Cluster) -> Iterator[str]:
    """A migrated database that nobody is connected to."""
    name = postgres_cluster.create()
    in_own_loop(_migrated(postgres_cluster.url(name)))
    yield name
    postgres_cluster.drop(name)


@pytest.fixture(params=ENGINES)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without any table, on each engine."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'muster.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=ENGINES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated database without any row, on each engine."""
    if request.param == "sqlite":
        path = tmp_path / "muster.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    cluster: Cluster = request.getfixturevalue("postgres_cluster")
    name = cluster.create(request.getfixturevalue("postgres_template"))
    yield cluster.url(name)
    cluster.drop(name)
