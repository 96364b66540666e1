"""The database fails: the caller hears that they may try again, and how nothing is done twice; reads go on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, event

from tests.support.coordinator_api import Api

MANY = 400  # requests that no file with a free page or two can take


@contextmanager
def full_disk() -> Iterator[Callable[[], None]]:
    """Let no SQLite file of this process grow any more, until the one thing that it gives makes room again."""

    pages = 1  # clamped to the present size

    def limit(connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    def make_room() -> None:
        nonlocal pages
        pages = 1 << 30

    event.listen(Engine, "begin", limit)
    try:
        yield make_room
    finally:
        event.remove(Engine, "begin", limit)


async def create(api: Api, number: int) -> tuple[int, dict[str, object]]:
    labels = {f"label{at}": "x" * 100 for at in range(20)}
    body = {"tenantId": "acme", "devices": [{"count": 1}], "duration": "1h", "labels": labels, "name": f"n{number}"}
    return await api.call("POST", "/v1/reservations", body)


async def test_a_full_disk_is_unavailable_and_not_a_bug_of_ours_and_nothing_is_half_stored(
    api: Api, database_url: str
) -> None:
    if "sqlite" not in database_url:
        pytest.skip("the page limit is SQLite's")
    made = 0
    with full_disk() as make_room:
        status = 201
        answer: dict[str, object] = {}
        while status == 201 and made < MANY:
            status, answer = await create(api, made)
            made += status == 201
        listed, _ = await api.call("GET", "/v1/pools")
        stored = await api.rows()
        make_room()
        again, _ = await create(api, made)

    assert (status, answer["code"], listed) == (503, "UNAVAILABLE", 200)
    assert "idempotency key" in str(answer["detail"])
    assert (len(stored["reservation"]), len(stored["event"])) == (made, 2 * made + 1)
    assert again == 201
