"""The database itself refuses two live bookings of one atom at one time, and only that."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import DBAPIError

from muster_coordinator.store.engine import is_overlap
from muster_coordinator.store.tables import ALLOCATION, BOOKING, NODE, POOL, RESERVATION
from tests.support.coordinator import Parked, opened

ALLOCATIONS = ("a", "b", "c")


def scene(connection: Connection) -> None:
    """A pool, two nodes, and three allocations that have booked nothing yet."""
    connection.execute(insert(POOL).values(id="pool", name="pool", policy="{}", version=0, created_ms=0))
    for node in ("n1", "n2"):
        connection.execute(
            insert(NODE).values(
                id=node,
                pool_id="pool",
                name=node,
                machine_id=node,
                token_hash=node,
                intent="schedulable",
                leased=False,
                silent=False,
                operator_labels="{}",
                past_boots="[]",
                seq=0,
                applied_rev=0,
                rev=1,
                version=0,
                created_ms=0,
            )
        )
    shape = {"shape": "{}", "grouping": "{}", "agreed": "[]", "size": 1}
    connection.execute(
        insert(RESERVATION).values(
            id="rsv", tenant_id="acme", pool_id="pool", state="placed", risks="[]", request="{}", **shape,
            start_ms=0, duration_ms=1, generation=1, version=0, seed=0, repairing=False, created_ms=0, body_hash="",
        )
    )  # fmt: skip
    for name in ALLOCATIONS:
        connection.execute(
            insert(ALLOCATION).values(
                id=name, reservation_id="rsv", node_id="n1", generation=1, live=True, bind_state="reserved",
                guard_armed=False,
            )
        )  # fmt: skip


def book(
    connection: Connection,
    allocation: str,
    start_ms: int,
    end_ms: int,
    *,
    mask: int = 0b1111,
    node: str = "n1",
    word: int = 0,
    live: bool = True,
) -> None:
    connection.execute(
        insert(BOOKING).values(
            allocation_id=allocation, word=word, node_id=node, reservation_id="rsv", mask=mask,
            start_ms=start_ms, end_ms=end_ms, live=live,
        )
    )  # fmt: skip


def change(connection: Connection, allocation: str, columns: Mapping[str, object]) -> None:
    connection.execute(update(BOOKING).where(BOOKING.c.allocation_id == allocation).values(**columns))


def refused(error: DBAPIError) -> bool:
    return is_overlap(error)


@pytest.mark.parametrize("window", [(0, 10), (9, 20), (5, 6), (-5, 30), (19, 40), (10, 20)], ids=str)
async def test_an_overlapping_window_of_the_same_atom_is_refused(database_url: str, window: tuple[int, int]) -> None:
    async with opened(database_url) as database:
        await database.write(scene)
        await database.write(book, "a", 5, 20)

        with pytest.raises(DBAPIError, check=refused):
            await database.write(book, "b", *window, mask=0b1000)


async def test_what_shares_no_instant_or_no_atom_is_accepted(database_url: str) -> None:
    def others(connection: Connection) -> None:
        book(connection, "b", 0, 10)
        book(connection, "c", 20, 30)
        book(connection, "a", 10, 20, word=1)
        book(connection, "b", 10, 20, word=2, mask=0b1)
        book(connection, "c", 10, 20, word=2, mask=0b10)
        book(connection, "b", 10, 20, word=3, node="n2")

    async with opened(database_url) as database:
        await database.write(scene)
        await database.write(book, "a", 10, 20)
        await database.write(others)

        count = await database.read(lambda connection: len(connection.execute(select(BOOKING)).all()))

    assert count == 7


async def test_the_last_atom_of_a_word_is_guarded_like_the_first(database_url: str) -> None:
    async with opened(database_url) as database:
        await database.write(scene)
        await database.write(book, "a", 10, 20, mask=1 << 62)
        await database.write(book, "b", 10, 20, mask=(1 << 62) - 1)

        with pytest.raises(DBAPIError, check=refused):
            await database.write(book, "c", 10, 20, mask=1 << 62)


async def test_a_booking_is_not_stretched_into_a_later_one(database_url: str) -> None:
    def stretch(connection: Connection, end_ms: int) -> None:
        connection.execute(update(BOOKING).where(BOOKING.c.allocation_id == "a").values(end_ms=end_ms))

    async with opened(database_url) as database:
        await database.write(scene)
        await database.write(book, "a", 0, 10)
        await database.write(book, "b", 20, 30)
        await database.write(stretch, 20)

        with pytest.raises(DBAPIError, check=refused):
            await database.write(stretch, 21)


async def test_a_booking_is_not_moved_onto_a_taken_atom_or_brought_back_to_life(database_url: str) -> None:
    async with opened(database_url) as database:
        await database.write(scene)
        await database.write(book, "a", 0, 10)
        await database.write(book, "b", 0, 10, node="n2")
        await database.write(book, "c", 0, 10, live=False)

        for allocation, columns in (("b", {"node_id": "n1"}), ("c", {"live": True})):
            with pytest.raises(DBAPIError, check=refused):
                await database.write(change, allocation, columns)


async def test_dead_rows_are_history_and_stand_in_nobodys_way(database_url: str) -> None:
    async with opened(database_url) as database:
        await database.write(scene)
        await database.write(book, "a", 0, 10, live=False)
        await database.write(book, "b", 0, 10)
        await database.write(book, "c", 0, 10, live=False)


async def test_after_a_refusal_in_a_savepoint_the_transaction_goes_on(database_url: str) -> None:
    def body(connection: Connection) -> None:
        book(connection, "a", 0, 10)
        with pytest.raises(DBAPIError, check=refused), connection.begin_nested():
            two(connection)
        book(connection, "c", 10, 15)

    def two(connection: Connection) -> None:
        book(connection, "b", 20, 30)
        book(connection, "c", 5, 15)

    async with opened(database_url) as database:
        await database.write(scene)
        await database.write(body)
        found = await database.read(
            lambda connection: sorted(connection.execute(select(BOOKING.c.allocation_id)).scalars())
        )

    assert found == ["a", "c"]


async def test_a_savepoint_that_only_looked_does_not_outlive_its_transaction(database_url: str) -> None:
    def body(connection: Connection) -> None:
        with connection.begin_nested():
            connection.execute(select(POOL)).all()
        with connection.begin_nested():
            scene(connection)
        raise LookupError

    async with opened(database_url) as database:
        with pytest.raises(LookupError):
            await database.write(body)
        found = await database.read(lambda connection: connection.execute(select(POOL)).all())

    assert found == []


@pytest.mark.parametrize("columns", [{"end_ms": 0}, {"mask": 0}, {"mask": -1}], ids=str)
async def test_an_empty_window_and_an_empty_mask_are_no_booking(database_url: str, columns: dict[str, int]) -> None:
    values = {"start_ms": 0, "end_ms": 10, "mask": 1, **columns}

    async with opened(database_url) as database:
        await database.write(scene)

        with pytest.raises(DBAPIError):
            await database.write(book, "a", values["start_ms"], values["end_ms"], mask=values["mask"])


async def test_a_reader_of_a_sqlite_file_may_not_write(tmp_path: Path, sqlite_template: Path) -> None:
    path = tmp_path / "muster.db"
    shutil.copyfile(sqlite_template, path)

    async with opened(f"sqlite:///{path}") as database:
        await database.write(scene)

        with pytest.raises(DBAPIError, match="readonly"):
            await database.read(lambda connection: connection.execute(update(NODE).values(leased=True)))


async def test_a_reader_sees_what_is_committed_beside_an_open_writer(database_url: str) -> None:
    def nodes(connection: Connection) -> int:
        return len(connection.execute(select(NODE)).all())

    async with opened(database_url) as database:
        await database.write(scene)
        parked = Parked()

        def write(connection: Connection) -> None:
            book(connection, "a", 0, 10)
            connection.execute(update(NODE).values(pool_id="pool"))
            parked.stop(connection)

        writing = asyncio.create_task(database.write(write))
        await parked.stopped.wait()
        assert await database.read(nodes) == 2
        parked.go_on()
        await writing
