"""`muster maintenance`, and what `muster nodes` tells of it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from muster_coordinator.service.maintenance import bodies as maintenance_bodies
from muster_shared.codec import decode
from tests.support.canned import HOUR_MS, NOW_MS, Coordinator, coordinator_running, node

PATH = "/v1/maintenance"
STAYS = {
    "reservationId": "rsv_1",
    "state": "active",
    "start": NOW_MS - HOUR_MS,
    "end": NOW_MS + 3 * HOUR_MS,
    "reason": "stays: it is active",
}
MOVES = {**STAYS, "reservationId": "rsv_2", "state": "placed", "reason": "moves: it fits elsewhere", "movesTo": ["b1"]}


def window(**changed: Any) -> dict[str, Any]:
    """A window of two nodes in two hours; fields that are given replace or add."""
    return {
        "id": "mnt_1",
        "poolId": "pool_1",
        "reason": "new fans",
        "state": "blocked",
        "start": NOW_MS + 2 * HOUR_MS,
        "end": NOW_MS + 6 * HOUR_MS,
        "nodes": [
            {"nodeId": "node_1", "nodeName": "a1", "booked": False, "inTheWay": [STAYS, MOVES]},
            {"nodeId": "node_2", "nodeName": "a2", "booked": True},
        ],
        "version": 2,
        "created": NOW_MS,
        **changed,
    }


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def test_the_canned_documents_are_documents_of_the_api() -> None:
    decode(maintenance_bodies.MaintenanceView, json.dumps(window()))


async def test_a_window_is_declared_and_told_with_everybody_who_is_in_the_way(coordinator: Coordinator) -> None:
    coordinator.answer(f"POST {PATH}", window())

    result = await coordinator.muster(
        "maintenance", "create", "--node", "a1,a2", "--node", "a3", "--start", "+2h", "--for", "4h", "--reason", "fans"
    )

    assert coordinator.asked[0].body == {
        "nodes": ["a1", "a2", "a3"],
        "start": "+2h",
        "duration": "4h",
        "reason": "fans",
    }
    assert result.exit_code == 0
    assert result.stderr == "Declared mnt_1: a1 will be free for it once nobody is in the way; see below.\n"
    assert result.stdout == (
        "ID     STATE    FREE  START  END    REASON\n"
        "mnt_1  blocked  1/2   in 2h  in 6h  new fans\n"
        "\n"
        "NODE  BOOKED\n"
        "a1    no\n"
        "a2    yes\n"
        "\n"
        "ON  IN-THE-WAY  STATE   START   END    REASON\n"
        "a1  rsv_1       active  1h ago  in 3h  stays: it is active\n"
        "a1  rsv_2       placed  1h ago  in 3h  moves: it fits elsewhere: b1\n"
    )


async def test_a_dry_run_asks_what_would_happen_and_declares_nothing(coordinator: Coordinator) -> None:
    told = window(state="declared")
    del told["id"]
    coordinator.answer(f"POST {PATH}/preview", told)
    flags = ("--selector", "rack=r7", "--until", "+6h", "--reason", "fans", "--dry-run")

    result = await coordinator.muster("maintenance", "create", *flags)
    names = await coordinator.muster("maintenance", "create", *flags, "-o", "name")

    assert {asked.call for asked in coordinator.asked} == {f"POST {PATH}/preview"}
    assert coordinator.asked[0].body == {"nodeSelector": {"rack": "r7"}, "end": "+6h", "reason": "fans"}
    assert result.stdout.splitlines()[1].startswith("(dry run)  declared")
    assert names.stdout == "a1\na2\n"


@pytest.mark.parametrize(
    "flags",
    [
        ("--for", "4h", "--reason", "x"),
        ("--node", "a1", "--selector", "rack=r7", "--for", "4h", "--reason", "x"),
        ("--node", "a1", "--reason", "x"),
        ("--node", "a1", "--for", "4h", "--until", "+5h", "--reason", "x"),
        ("--node", "a1", "--for", "4h"),
        ("--node", "a1", "--for", "soon", "--reason", "x"),
    ],
    ids=" ".join,
)
async def test_flags_that_make_no_window_ask_nothing(coordinator: Coordinator, flags: tuple[str, ...]) -> None:
    result = await coordinator.muster("maintenance", "create", *flags)

    assert (result.exit_code, coordinator.asked) == (2, [])


async def test_windows_are_listed_shown_cancelled_and_ended(coordinator: Coordinator) -> None:
    coordinator.answer(f"GET {PATH}", {"items": [window()]})
    coordinator.answer(f"GET {PATH}/mnt_1", window())
    for verb in ("cancel", "end"):
        coordinator.answer(f"POST {PATH}/mnt_1/{verb}", window(state="ended"))

    listed = await coordinator.muster("maintenance", "-o", "wide")
    everything = await coordinator.muster("maintenance", "list", "--all", "--pool", "p", "-o", "name")
    shown = await coordinator.muster("maintenance", "get", "mnt_1", "-o", "json")
    cancelled = await coordinator.muster("maintenance", "cancel", "mnt_1")
    ended = await coordinator.muster("maintenance", "end", "mnt_1", "--yes")

    assert listed.stdout.splitlines()[1] == (
        "mnt_1  blocked  1/2   2026-09-28T10:00:00Z  2026-09-28T14:00:00Z  new fans  pool_1  a1,a2"
    )
    assert (everything.stdout, coordinator.asked[1].call) == ("mnt_1\n", f"GET {PATH}?poolId=p&all=true")
    assert json.loads(shown.stdout) == window()
    assert (cancelled.stderr, ended.stderr) == ("Cancelled mnt_1.\n", "Ended mnt_1.\n")


async def test_nodes_are_not_given_back_without_being_asked(coordinator: Coordinator) -> None:
    result = await coordinator.muster("maintenance", "end", "mnt_1")

    assert (result.exit_code, coordinator.asked) == (2, [])


async def test_nodes_tell_until_when_they_are_in_maintenance_or_from_when_on(coordinator: Coordinator) -> None:
    now = {"id": "mnt_1", "reason": "fans", "start": NOW_MS - HOUR_MS, "end": NOW_MS + HOUR_MS}
    later = {**now, "start": NOW_MS + HOUR_MS, "end": NOW_MS + 2 * HOUR_MS}
    nodes = [node(name="a1", maintenance=now), node(name="a2", maintenance=later), node(name="a3")]
    coordinator.answer("GET /v1/nodes", {"items": nodes})

    result = await coordinator.muster("nodes")

    assert result.stdout == (
        "NAME  STATE        FREE  FABRIC  HOLDS  REPORTED  MAINTENANCE\n"
        "a1    maintenance  6/8   f00d.1  -      4s ago    until 2026-09-28T09:00:00Z\n"
        "a2    ready        6/8   f00d.1  -      4s ago    from 2026-09-28T09:00:00Z\n"
        "a3    ready        6/8   f00d.1  -      4s ago    -\n"
    )
