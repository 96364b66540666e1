"""`muster extend` and `muster shrink`: what they send, what they show, and how they end."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.canned import HOUR_MS, NOW_MS, Coordinator, coordinator_running, reservation

EXTEND = "POST /v1/reservations/rsv_1/extend"
SHRINK = "POST /v1/reservations/rsv_1/shrink"


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def extended(*, fits: bool = True, **changed: Any) -> dict[str, Any]:
    then = {
        "kind": "reservation",
        "message": "another reservation has devices of gpu-01 from 2026-09-29T00:00:00Z until 2026-09-29T04:00:00Z",
        "nodeName": "gpu-01",
    }
    extension = {"fits": fits, "longestEnd": NOW_MS + 16 * HOUR_MS, "blockedBy": then, **changed}
    return reservation(extension=extension)


async def test_extend_sends_what_was_said_and_shows_the_new_end(coordinator: Coordinator) -> None:
    coordinator.answer(EXTEND, extended(end=NOW_MS + 15 * HOUR_MS))

    result = await coordinator.muster("extend", "rsv_1", "--until", "+15h")

    assert coordinator.asked[0].body == {"until": "+15h"}
    assert (result.exit_code, result.stderr) == (0, "rsv_1 ends in 15h.\n")
    assert result.stdout.splitlines()[-2:] == [
        "FITS  UNTIL   LONGEST-END  THEN",
        (
            "yes   in 15h  in 16h       another reservation has devices of gpu-01 from 2026-09-29T00:00:00Z until "
            "2026-09-29T04:00:00Z"
        ),
    ]


async def test_a_dry_run_that_does_not_fit_ends_with_4_and_tells_the_longest_end(coordinator: Coordinator) -> None:
    coordinator.answer(EXTEND, extended(fits=False, end=NOW_MS + 20 * HOUR_MS))

    result = await coordinator.muster("extend", "rsv_1", "--by", "5h", "--dry-run")

    assert coordinator.asked[0].body == {"by": "5h", "dryRun": True}
    assert (result.exit_code, result.stderr) == (
        4,
        "Error: It cannot last so long.\nNext: ask for at most the longest possible end, or reserve another window.\n",
    )
    assert "no    in 20h  in 16h" in result.stdout


async def test_a_dry_run_alone_asks_for_the_longest_end(coordinator: Coordinator) -> None:
    coordinator.answer(EXTEND, extended())

    result = await coordinator.muster("extend", "rsv_1", "--dry-run", "-o", "json")

    assert coordinator.asked[0].body == {"dryRun": True}
    assert (result.exit_code, '"longestEnd"' in result.stdout, result.stderr) == (0, True, "")


async def test_a_refusal_is_told_in_flags(coordinator: Coordinator) -> None:
    message = "2026-09-28T08:30:00Z is before the present end"
    coordinator.refuse(EXTEND, 400, "INVALID_INPUT", f"until: {message}", (("until", message),))

    result = await coordinator.muster("extend", "rsv_1", "--until", "+30m")

    assert (result.exit_code, result.stderr.splitlines()[0]) == (2, f"Error: INVALID_INPUT: --until: {message}")


@pytest.mark.parametrize(
    ("args", "body", "sentence"),
    [
        (("--to", "1"), {"to": 1}, "rsv_1 has 1 node; gave back gpu-02."),
        (("--drop", "gpu-02,"), {"drop": ["gpu-02"]}, "rsv_1 has 1 node; gave back gpu-02."),
        (("--to", "1", "--dry-run"), {"to": 1, "dryRun": True}, "Would give back gpu-02."),
    ],
)
async def test_shrink_sends_what_was_said_and_names_who_left(
    coordinator: Coordinator, args: tuple[str, ...], body: object, sentence: str
) -> None:
    coordinator.answer(SHRINK, reservation(dropped=["gpu-02"], gang={"size": 1}))

    result = await coordinator.muster("shrink", "rsv_1", *args)

    assert coordinator.asked[0].body == body
    assert (result.exit_code, result.stderr) == (0, f"{sentence}\n")
    assert result.stdout.splitlines()[-2:] == ["GIVEN-BACK", "gpu-02"]


@pytest.mark.parametrize(
    ("args", "sentence"), [(("--to", "2"), "rsv_1 has 2 nodes, as before."), (("--to", "2", "--dry-run"), "Nothing")]
)
async def test_shrink_that_changes_nothing_says_so(
    coordinator: Coordinator, args: tuple[str, ...], sentence: str
) -> None:
    coordinator.answer(SHRINK, reservation(dropped=[]))

    result = await coordinator.muster("shrink", "rsv_1", *args)

    assert (result.exit_code, sentence in result.stderr) == (0, True)


@pytest.mark.parametrize(
    "args",
    [
        ("extend", "rsv_1"),
        ("extend", "rsv_1", "--by", "1h", "--until", "+2h"),
        ("extend", "rsv_1", "--by", "soon"),
        ("shrink", "rsv_1"),
        ("shrink", "rsv_1", "--to", "0"),
        ("shrink", "rsv_1", "--to", "1", "--drop", "gpu-01"),
        ("shrink", "rsv_1", "--drop", ","),
    ],
    ids=" ".join,
)
async def test_a_misuse_ends_with_2_before_anything_is_sent(coordinator: Coordinator, args: tuple[str, ...]) -> None:
    result = await coordinator.muster(*args)

    assert (result.exit_code, result.stdout, coordinator.asked) == (2, "", [])
    assert result.stderr.splitlines()[-1].startswith("Error: ")


async def test_get_tells_of_a_node_that_knows_only_an_older_end(coordinator: Coordinator) -> None:
    """F06: a node that is cut off lets go at the end that it was told."""
    gang = reservation(state="active")
    gang["members"][0] |= {"bindState": "bound", "grantedUntil": NOW_MS + HOUR_MS}
    coordinator.answer("GET /v1/reservations/rsv_1", gang)

    result = await coordinator.muster("get", "rsv_1")

    assert "knows only of an end in 1h" in result.stdout
