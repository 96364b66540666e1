"""Two coordinator processes on one PostgreSQL, which place at once and share one truth."""

import asyncio
import json
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select

from muster_coordinator.store.tables import BOOKING
from muster_shared.devices import atom_numbers
from tests.support.coordinator import opened
from tests.support.fleet import CLUSTER_A, Fleet, Program, host, until
from tests.support.invariants import check

NODES = ("n1", "n2", "n3", "n4")
GPUS = 8
WRITERS = 8  # half of them at each coordinator
REQUESTS = 6  # of each writer
STEP_S = 60
DAY_MS = 86_400_000

Pair = tuple[Fleet, Program, str, str]


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[Pair]:
    """Agents of four nodes, and two coordinators; also the second's URL, and that of the database."""
    first_port, second_port = _free_ports(2)
    dsn = postgres_url.replace("postgresql+asyncpg://", "postgresql://", 1)
    made = Fleet(tmp_path, first_port, None, {"heartbeat_ms": 1_000, "unreachable_after_beats": 30}, dsn)
    for name in NODES:
        made.add(name, host(tmp_path / name, name, None, cluster=CLUSTER_A))
    second, url = made.replica(second_port), f"http://127.0.0.1:{second_port}"
    made.start()
    second.start()
    try:
        assert until(lambda: made.call("GET", "/readyz", url=url), STEP_S), _logs(made)
        assert until(lambda: _fabrics(made) == len(NODES), STEP_S), _logs(made)
        yield made, second, url, postgres_url
    finally:
        second.terminate()
        made.stop()


def test_two_processes_that_place_at_once_book_every_atom_once(pair: Pair) -> None:
    """Both answer every call; the database holds no overlap, no gang in part, and what each was told."""
    fleet, _, other, database = pair
    start_ms = _now_ms(fleet) + DAY_MS

    def writer(number: int) -> list[Any]:
        url = other if number % 2 else fleet.url
        asked = [{**_asked(number, turn), "start": start_ms} for turn in range(REQUESTS)]
        return [fleet.call("POST", "/v1/reservations", one, url=url) for one in asked]

    with ThreadPoolExecutor(WRITERS) as writers:
        made = list(writers.map(writer, range(WRITERS)))

    told = {one["id"]: one for answers in made for one in answers}
    placed = {id_: one for id_, one in told.items() if one["state"] == "placed"}
    by_door = [{one["state"] for answers in made[at::2] for one in answers} for at in range(2)]
    assert len(told) == WRITERS * REQUESTS
    assert by_door == [{"placed", "pending"}] * 2, "both placed, and both ran out of room"
    assert all(len(one["members"]) == one["gang"]["size"] for one in placed.values())
    for id_, one in placed.items():
        shown = [fleet.call("GET", f"/v1/reservations/{id_}", url=url) for url in (fleet.url, other)]
        assert [view["members"] for view in shown] == [one["members"]] * 2
    faults, booked = asyncio.run(_judged(database, _now_ms(fleet)))
    assert faults == []
    assert len(booked) == len(set(booked)) == sum(_gpus(one) for one in placed.values()) <= len(NODES) * GPUS


def test_what_a_killed_process_had_placed_is_carried_on_by_the_other(pair: Pair) -> None:
    fleet, second, other, database = pair
    asked = {**_asked(1, 0), "gang": {"size": 2, "topologyKey": "fabric.domain"}}
    made = fleet.call("POST", "/v1/reservations", asked, url=other)
    second.kill()

    path = f"/v1/reservations/{made['id']}"
    # The second may have led the pool: its lease has to run out first.
    assert until(lambda: fleet.get(path)["state"] == "active", 2 * STEP_S), _logs(fleet)
    faults, booked = asyncio.run(_judged(database, _now_ms(fleet)))
    assert (faults, len(booked)) == ([], _gpus(made))


def _asked(number: int, turn: int) -> dict[str, Any]:
    """Write a request: of many sizes, for the same hour."""
    size, gpus = 1 + (number + turn) % 4, 1 + (3 * number + turn) % 3
    return {
        "tenantId": f"t{number}",
        "devices": [{"class": "gpu", "count": gpus}],
        "gang": {"size": size, **({"topologyKey": "fabric.domain"} if size > 1 else {})},
        "duration": "1h",
    }


def _gpus(view: dict[str, Any]) -> int:
    return int(view["gang"]["size"] * view["devices"][0]["count"])


def _now_ms(fleet: Fleet) -> int:
    return int(fleet.get("/v1/pools")["items"][0]["asOf"])


async def _judged(database: str, now_ms: int) -> tuple[list[str], Sequence[tuple[str, int]]]:
    """Return which invariants are broken, and every booked atom as often as it is booked."""

    def booked(connection: Connection) -> list[tuple[str, int]]:
        rows = connection.execute(select(BOOKING.c.node_id, BOOKING.c.mask).where(BOOKING.c.live))
        return [(row.node_id, number) for row in rows for number in atom_numbers(row.mask)]

    async with opened(database) as stored:
        return await stored.read(check, now_ms), await stored.read(booked)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _fabrics(fleet: Fleet) -> int:
    return sum("fabric.domain" in node["labels"] for node in fleet.get("/v1/nodes")["items"])


def _logs(fleet: Fleet) -> str:
    return json.dumps({path.name: path.read_text()[-2_000:] for path in fleet.folder.glob("**/*.log")}, indent=1)
