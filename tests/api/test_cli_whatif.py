"""`muster whatif`: what it asks, what it shows, and that it changes nothing by being asked."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.canned import HOUR_MS, NOW_MS, Coordinator, coordinator_running

ASK = "POST /v1/capacity/whatif"
FATE = {
    "reservationId": "rsv_1",
    "tenantId": "acme",
    "state": "placed",
    "start": NOW_MS + 3 * HOUR_MS,
    "end": NOW_MS + 5 * HOUR_MS,
    "gangSize": 2,
    "outcome": "moves",
    "lost": ["gpu-01"],
    "nodes": ["gpu-02", "gpu-07"],
    "message": "it is repaired without gpu-01",
}


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def told(*items: dict[str, Any]) -> dict[str, Any]:
    counts = {"moves": len(items)} if items else {}
    rest = {"untouched": 7, "items": list(items), "asOf": NOW_MS}
    return {"poolId": "pool_1", "at": NOW_MS, "lost": ["gpu-01", "gpu-03"], "outcomes": counts, **rest}


async def test_it_asks_as_it_was_told_and_shows_one_row_a_booking(coordinator: Coordinator) -> None:
    coordinator.answer(ASK, told(FATE))

    result = await coordinator.muster(
        *("whatif", "--lose", "rack=r7", "--lose", "node=gpu-03", "--at", "+2h", "--for", "4h", "--pool", "main")
    )

    lose = [{"key": "rack", "value": "r7"}, {"key": "node", "value": "gpu-03"}]
    assert coordinator.asked[0].body == {"poolId": "main", "lose": lose, "at": "+2h", "duration": "4h"}
    assert result.stdout.splitlines() == [
        "ID     TENANT  NODES  START  END    OUTCOME  LOSES   THEN-ON        REASON",
        "rsv_1  acme    2      in 3h  in 5h  moves    gpu-01  gpu-02,gpu-07  it is repaired without gpu-01",
    ]
    assert (result.exit_code, result.stderr) == (
        0,
        "Without 2 nodes, of the bookings there: 1 moves. Others in the pool: 7, untouched.\n",
    )


async def test_where_nothing_is_booked_it_says_so(coordinator: Coordinator) -> None:
    coordinator.answer(ASK, told())

    result = await coordinator.muster("whatif", "--lose", "rack=r7")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "Without 2 nodes, of the bookings there: none. Others in the pool: 7, untouched.\n"


async def test_programs_get_the_document_and_the_ids(coordinator: Coordinator) -> None:
    coordinator.answer(ASK, told(FATE))

    as_json = await coordinator.muster("whatif", "--lose", "rack=r7", "-o", "json")
    as_names = await coordinator.muster("whatif", "--lose", "rack=r7", "-o", "name")

    assert json.loads(as_json.stdout) == told(FATE)
    assert as_names.stdout == "rsv_1\n"


@pytest.mark.parametrize("args", [(), ("--lose", "r7"), ("--lose", "rack=r7", "--for", "soon")], ids=" ".join)
async def test_a_misuse_ends_with_2_before_anything_is_sent(coordinator: Coordinator, args: tuple[str, ...]) -> None:
    result = await coordinator.muster("whatif", *args)

    assert (result.exit_code, coordinator.asked) == (2, [])
