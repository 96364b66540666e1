"""The schema goes up and down on both engines, and what cannot be served is refused."""

from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from muster_coordinator.store import migrate
from muster_coordinator.store.engine import Database, DatabaseInUseError
from muster_coordinator.store.ledger_tables import METADATA
from muster_coordinator.store.migrate import SchemaError
from tests.support.coordinator import opened

DROP = {
    "sqlite": ("DROP TRIGGER muster_booking_overlap_insert", "DROP TRIGGER muster_booking_overlap_update"),
    "postgresql": ("ALTER TABLE booking DROP CONSTRAINT muster_booking_overlap",),
}


def tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def order(connection: Connection, sql: str) -> None:
    connection.execute(text(sql))


async def test_the_schema_goes_up_down_and_up_again(empty_url: str) -> None:
    async with opened(empty_url) as database:
        await database.write(migrate.upgrade)
        up = await database.read(tables)
        await database.write(migrate.downgrade, "base")
        down = await database.read(tables)
        await database.write(migrate.upgrade)
        again = await database.read(tables)

    assert up == again == {*METADATA.tables, "alembic_version"}
    assert down == {"alembic_version"}


async def test_the_migrations_make_what_the_tables_say(database_url: str) -> None:
    async with opened(database_url) as database:
        await database.write(migrate.check)


async def test_upgrading_what_is_up_to_date_changes_nothing(database_url: str) -> None:
    async with opened(database_url) as database:
        await database.write(migrate.upgrade)


def upgrade_after(connection: Connection, statement: str) -> None:
    order(connection, statement)
    migrate.upgrade(connection)


async def test_a_database_without_a_guard_is_not_served(database_url: str) -> None:
    async with opened(database_url) as database:
        for statement in DROP[database.engine.dialect.name]:
            with pytest.raises(SchemaError, match=r"guard against double booking \(muster_booking_overlap"):
                await database.write(upgrade_after, statement)
        await database.write(migrate.upgrade)


async def test_a_newer_schema_is_not_served(database_url: str) -> None:
    async with opened(database_url) as database:
        await database.write(order, "UPDATE alembic_version SET version_num = '9999'")

        with pytest.raises(SchemaError, match="revision 9999, which this version of Muster does not know"):
            await database.write(migrate.upgrade)


async def test_a_migration_that_fails_half_way_leaves_nothing(empty_url: str) -> None:
    async with opened(empty_url) as database:
        # The tables are made in the order of the migration: this one stands in the way of the last.
        await database.write(order, "CREATE TABLE booking (allocation_id text)")

        with pytest.raises(DBAPIError):
            await database.write(migrate.upgrade)

        assert await database.read(tables) == {"booking"}


async def test_tables_made_in_a_transaction_that_fails_are_gone(empty_url: str) -> None:
    def make(connection: Connection) -> None:
        order(connection, "CREATE TABLE seat (id text)")
        raise LookupError

    async with opened(empty_url) as database:
        with pytest.raises(LookupError):
            await database.write(make)

        assert await database.read(tables) == set()


async def test_a_second_process_on_one_sqlite_file_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'muster.db'}"

    async with opened(url):
        with pytest.raises(DatabaseInUseError, match="in use by another process"):
            Database(url)
    async with opened(url):
        pass  # whoever held it has gone
