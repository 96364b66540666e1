"""What every tier may ask for: a real PostgreSQL, and a fresh database in it."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import Cluster, serving


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pg-dsn",
        metavar="DSN",
        help="a PostgreSQL to test on, as postgresql://user:password@host:port/database, whose user may create "
        "databases; without it a private server is started",
    )


@pytest.fixture(scope="session")
def postgres_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """One server for the whole run, started by the first test that asks."""
    with serving(pytestconfig.getoption("--pg-dsn")) as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres_cluster: Cluster) -> Iterator[str]:
    """A new, empty database as `postgresql+asyncpg://...`, dropped after the test."""
    database = postgres_cluster.create()
    yield postgres_cluster.url(database)
    postgres_cluster.drop(database)
