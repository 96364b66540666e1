"""`muster reserve --wait`, cancel and release, run against a coordinator that answers fixed documents."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from tests.support.canned import Coordinator, coordinator_running, pending, reservation

RESERVE = ("reserve", "--tenant", "acme", "--gpus", "8", "--for", "12h")


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def reserved(coordinator: Coordinator, document: dict[str, Any]) -> None:
    coordinator.answer("POST /v1/reservations", document, 201)


async def test_waiting_asks_until_the_state_is_reached_and_tells_how_it_changes(coordinator: Coordinator) -> None:
    reserved(coordinator, pending(id="rsv_1"))
    for state in ("pending", "placed", "binding", "active"):
        coordinator.answer("GET /v1/reservations/rsv_1", reservation(state=state))

    result = await coordinator.muster(*RESERVE, "--wait", "-o", "name")

    assert (result.exit_code, result.stdout) == (0, "rsv_1\n")
    assert result.stderr == "rsv_1 is pending.\nrsv_1 is placed.\nrsv_1 is binding.\nrsv_1 is active.\n"
    assert coordinator.clock.slept == [2.0, 2.0, 2.0, 2.0]


async def test_waiting_for_a_state_that_is_passed_already_waits_for_nothing(coordinator: Coordinator) -> None:
    reserved(coordinator, reservation(state="active"))

    result = await coordinator.muster(*RESERVE, "--wait", "placed")

    assert (result.exit_code, coordinator.clock.slept) == (0, [])


async def test_waiting_too_long_ends_with_124_and_still_tells_the_id(coordinator: Coordinator) -> None:
    reserved(coordinator, pending(id="rsv_1"))
    coordinator.answer("GET /v1/reservations/rsv_1", pending(id="rsv_1"))

    result = await coordinator.muster(*RESERVE, "--wait", "active", "--timeout", "5s", "-o", "name")

    assert (result.exit_code, result.stdout) == (124, "rsv_1\n")
    assert coordinator.clock.slept == [2.0, 2.0, 1.0]


async def test_interrupted_waiting_ends_with_130_and_says_that_the_reservation_goes_on(
    coordinator: Coordinator,
) -> None:
    reserved(coordinator, pending(id="rsv_1"))
    coordinator.clock.interrupts = 0

    result = await coordinator.muster(*RESERVE, "--wait", "-o", "name")

    assert (result.exit_code, result.stdout) == (130, "rsv_1\n")
    assert result.stderr == (
        "rsv_1 is pending.\n"
        "Error: Interrupted: rsv_1 is still pending\n"
        "Next: nothing is lost, it goes on without you; muster get shows it.\n"
    )


async def test_waiting_for_what_has_ended_is_an_error(coordinator: Coordinator) -> None:
    reserved(coordinator, reservation(state="ended", reason="Expired"))

    result = await coordinator.muster(*RESERVE, "--wait", "-o", "name")

    assert result.exit_code == 1
    assert "Error: rsv_1 ended before it was active: Expired\n" in result.stderr


async def test_cancel_and_release_tell_what_happened(coordinator: Coordinator) -> None:
    coordinator.answer("POST /v1/reservations/rsv_1/cancel", reservation(state="ended", reason="Cancelled", members=[]))
    coordinator.answer("POST /v1/reservations/rsv_1/release", reservation(state="ending"))

    cancelled = await coordinator.muster("cancel", "rsv_1")
    released = await coordinator.muster("release", "rsv_1", "-o", "name")

    assert cancelled.stderr == "rsv_1 has ended: Cancelled.\n"
    assert cancelled.stdout.splitlines()[1] == "rsv_1  acme    ended  2x8   -      -    Cancelled"
    assert released.stderr == "rsv_1 is ending: its GPUs are free once every node has confirmed.\n"
    assert released.stdout == "rsv_1\n"


async def test_many_are_ended_only_with_a_yes(coordinator: Coordinator) -> None:
    result = await coordinator.muster("cancel", "rsv_1", "rsv_2")

    assert (result.exit_code, coordinator.asked) == (2, [])
    assert "--yes" in result.stderr


async def test_one_refusal_does_not_keep_the_others_from_ending(coordinator: Coordinator) -> None:
    coordinator.refuse("POST /v1/reservations/rsv_1/cancel", 409, "CONFLICT", "Reservation has ended")
    coordinator.answer("POST /v1/reservations/rsv_2/cancel", reservation(id="rsv_2", state="ended", reason="Cancelled"))

    result = await coordinator.muster("cancel", "rsv_1", "rsv_2", "--yes", "-o", "name")

    assert (result.exit_code, result.stdout) == (4, "rsv_2\n")
    assert "Error: CONFLICT: Reservation has ended\n" in result.stderr
