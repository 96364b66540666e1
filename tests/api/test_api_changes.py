"""Over HTTP: reservations last longer and gangs get smaller; what is refused changes nothing."""

import asyncio
from typing import Any

import pytest

from tests.support.coordinator_api import Api
from tests.support.service_world import HOUR, START_MS

GANG = {"tenantId": "acme", "devices": [{"count": 8}], "gang": {"size": 2}, "duration": "1h", "start": "+1h"}


async def made(api: Api, **changed: Any) -> dict[str, Any]:
    status, document = await api.call("POST", "/v1/reservations", {**GANG, **changed})
    assert status == 201
    return dict(document)


async def test_a_reservation_is_extended_and_get_shows_the_same(api: Api) -> None:
    """R22: answer, database and `get` agree."""
    await api.join("a1")
    await api.join("a2")
    gang = await made(api)
    path = f"/v1/reservations/{gang['id']}"

    status, answer = await api.call("POST", f"{path}/extend", {"by": "2h"})

    extension = answer.pop("extension")
    assert (status, answer["end"]) == (200, gang["end"] + 2 * HOUR)
    assert (await api.call("GET", path))[1] == answer
    assert (extension["fits"], extension["end"], extension["blockedBy"]["kind"]) == (True, answer["end"], "maxDuration")


async def test_a_dry_run_answers_the_longest_end_and_stores_nothing(api: Api) -> None:
    await api.join("a1")
    first = await made(api, gang={"size": 1})
    behind = await made(api, gang={"size": 1}, start="+4h", tenantId="other")
    before = await api.rows()

    status, answer = await api.call("POST", f"/v1/reservations/{first['id']}/extend", {"by": "9h", "dryRun": True})

    assert (status, answer["end"]) == (200, first["end"])
    assert answer["extension"]["longestEnd"] == behind["start"] == START_MS + 4 * HOUR
    assert not answer["extension"]["fits"]
    assert behind["id"] not in str(answer)
    assert await api.rows() == before


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [
        ("extend", None, 400),
        ("extend", {"by": "1h", "until": "+9h"}, 400),
        ("extend", {"until": "+30m"}, 400),
        ("extend", {"until": "2026-13-01T00:00:00Z"}, 400),
        ("extend", {"by": "365d"}, 400),
        ("extend", {"by": 3600}, 400),
        ("extend", {"by": "1h", "dryRun": "yes"}, 400),
        ("extend", {"bye": "1h"}, 400),
        ("shrink", None, 400),
        ("shrink", {"to": 0}, 400),
        ("shrink", {"to": 3}, 400),
        ("shrink", {"drop": []}, 400),
        ("shrink", {"drop": ["nobody"]}, 400),
        ("shrink", {"drop": ["a1", "a2"]}, 400),
        ("shrink", {"to": 1, "drop": ["a1"]}, 400),
    ],
    ids=str,
)
async def test_a_refused_change_leaves_everything_as_it_was(api: Api, verb: str, body: Any, status: int) -> None:
    """R09: an update with a bad date put a lease into an error that nothing ended."""
    await api.join("a1")
    await api.join("a2")
    path = f"/v1/reservations/{(await made(api))['id']}"
    shown, rows = await api.call("GET", path), await api.rows()

    answered, problem = await api.call("POST", f"{path}/{verb}", body)

    assert (answered, problem["code"]) == (status, "INVALID_INPUT")
    assert await api.call("GET", path) == shown
    assert await api.rows() == rows


@pytest.mark.parametrize(("verb", "body"), [("extend", {"by": "1h"}), ("shrink", {"to": 1})])
async def test_what_nobody_made_is_not_changed(api: Api, verb: str, body: Any) -> None:
    status, problem = await api.call("POST", f"/v1/reservations/rsv_nobody/{verb}", body)

    assert (status, problem["code"]) == (404, "NOT_FOUND")


async def test_a_gang_gives_a_node_back(api: Api) -> None:
    await api.join("a1")
    await api.join("a2")
    gang = await made(api)
    path = f"/v1/reservations/{gang['id']}"

    tried = await api.call("POST", f"{path}/shrink", {"to": 1, "dryRun": True})
    status, answer = await api.call("POST", f"{path}/shrink", {"drop": ["a1"]})

    assert (tried[1]["dropped"], tried[1]["gang"]["size"]) == (["a2"], 2)
    assert (status, answer.pop("dropped"), answer["gang"]["size"]) == (200, ["a1"], 1)
    assert [member["nodeName"] for member in answer["members"]] == ["a2"]
    assert (await api.call("GET", path))[1] == answer


async def test_refused_extensions_give_nothing_away(api: Api) -> None:
    """R21: a refused alter released the nodes inside the scheduler, and others were placed on them."""
    await api.join("a1")
    await api.join("a2")
    first = await made(api, gang={"size": 1})
    behind = await made(api, gang={"size": 2}, start="+2h")
    path = f"/v1/reservations/{first['id']}"

    async def refused() -> list[int]:
        return [(await api.call("POST", f"{path}/extend", {"by": "1m"}))[0] for _ in range(12)]

    async def creates() -> list[str]:
        asked = {"gang": {"size": 1}, "start": "+90m"}
        return [(await made(api, **asked, tenantId=f"t{number}"))["state"] for number in range(12)]

    answers, states = await asyncio.gather(refused(), creates())

    assert set(answers) == {409}
    assert sorted(states) == ["pending"] * 12
    assert [(await api.call("GET", f"/v1/reservations/{one['id']}"))[1] for one in (first, behind)] == [first, behind]


async def test_a_loss_of_nodes_is_foretold_and_nothing_is_stored(api: Api) -> None:
    await api.join("a1")
    await api.join("a2")
    one = await made(api, gang={"size": 1})
    gang = await made(api, start="+3h")
    name = one["members"][0]["nodeName"]
    before = await api.rows()

    status, answer = await api.call(
        "POST", "/v1/capacity/whatif", {"lose": [{"key": "node", "value": name}], "at": "+30m", "duration": "9h"}
    )

    assert (status, answer["outcomes"], answer["lost"]) == (200, {"fails": 1, "moves": 1}, [name])
    assert [item["reservationId"] for item in answer["items"]] == [one["id"], gang["id"]]
    assert await api.rows() == before


@pytest.mark.parametrize(
    "body", [None, {}, {"lose": []}, {"lose": [{"key": "rack"}]}, {"lose": [{"key": "node", "value": "a1"}], "at": 1}]
)
async def test_a_question_that_is_incomplete_is_refused(api: Api, body: Any) -> None:
    await api.join("a1")

    assert (await api.call("POST", "/v1/capacity/whatif", body))[0] == 400
