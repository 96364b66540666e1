"""Databases for the coordinator, on both engines: empty ones, and copies of one that was migrated once."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import pytest
from sqlalchemy import Connection, event, select
from sqlalchemy.engine.interfaces import DBAPIConnection

from muster_coordinator.store import migrate
from muster_coordinator.store.engine import Database
from muster_coordinator.store.tables import METADATA
from tests.support.postgres import Cluster

ENGINES = ("sqlite", "postgresql")

D = TypeVar("D", bound=Database)
R = TypeVar("R")
Rows = dict[str, list[tuple[Any, ...]]]


def door(url: str) -> Database:
    """Open a database for a test."""
    return hurried(Database(free_of_threads(url)))


def free_of_threads(url: str) -> str:
    """Let whoever uses a SQLite connection be another than who opened it: see `without_sqlites_thread`."""
    return f"{url}?check_same_thread=false" if url.startswith("sqlite") else url


def hurried(database: D) -> D:
    """Let SQLite not wait for the disk: no test's file need survive a power cut."""
    if database.is_sqlite:

        @event.listens_for(database.engine.sync_engine, "connect")
        def _hurry(connection: DBAPIConnection, _record: object) -> None:
            cursor = connection.cursor()
            cursor.execute("PRAGMA synchronous=OFF")
            cursor.close()

    return database


def without_sqlites_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SQLite's driver work where it is called, not in a thread of its own: three times as many tests a second."""

    async def at_once(_connection: aiosqlite.Connection, order: Callable[..., R], *args: object, **kwargs: object) -> R:
        return order(*args, **kwargs)

    monkeypatch.setattr(aiosqlite.Connection, "_execute", at_once)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    """Open a database for the length of a block."""
    database = door(url)
    try:
        yield database
    finally:
        await database.close()


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
    in_own_loop(_migrated(f"sqlite+aiosqlite:///{path}"))
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
        return f"sqlite+aiosqlite:///{tmp_path / 'muster.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=ENGINES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated database without any row, on each engine."""
    if request.param == "sqlite":
        path = tmp_path / "muster.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite+aiosqlite:///{path}"
        return
    cluster: Cluster = request.getfixturevalue("postgres_cluster")
    name = cluster.create(request.getfixturevalue("postgres_template"))
    yield cluster.url(name)
    cluster.drop(name)
