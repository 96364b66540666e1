"""Series over HTTP: made with their occurrences, shown, decided on, and refused with the field that is wrong."""

from typing import Any

import pytest

from tests.support.coordinator_api import Api
from tests.support.service_world import DAY, HOUR, START_MS

FIRST_MS = START_MS + 2 * HOUR  # 10:00 of the day
ASKED: dict[str, Any] = {
    "tenantId": "acme",
    "devices": [{"count": 8}],
    "rule": "FREQ=DAILY;COUNT=3",
    "at": "10:00",
    "duration": "2h",
}


async def made(api: Api, **changed: Any) -> dict[str, Any]:
    status, view = await api.call("POST", "/v1/series", {**ASKED, **changed})
    assert status == 201, view
    found: dict[str, Any] = view
    return found


async def test_a_series_is_answered_with_the_reservations_of_its_occurrences(api: Api) -> None:
    await api.join("a1")

    view = await made(api, name="nightly", labels={"team": "vision"}, nodeSelector={}, zone="Europe/Berlin")

    assert {key: view[key] for key in ("state", "rule", "zone", "first", "duration", "labels", "until")} == {
        "state": "active",
        "rule": "FREQ=DAILY;COUNT=3",
        "zone": "Europe/Berlin",
        "first": "2027-01-15T10:00:00",
        "duration": 2 * HOUR,
        "labels": {"team": "vision"},
        "until": FIRST_MS - HOUR + 2 * DAY + 1,
    }
    _, page = await api.call("GET", f"/v1/reservations?seriesId={view['id']}")
    assert [(one["id"], one["occurrence"], one["seriesId"], one["name"]) for one in page["items"]] == [
        (one["reservationId"], one["occurrence"], view["id"], "nightly") for one in view["occurrences"]
    ]
    assert (await api.call("GET", "/v1/reservations?seriesId=series_x"))[1]["items"] == []


async def test_every_decision_answers_with_the_series_as_it_is_then(api: Api) -> None:
    await api.join("a1")
    view = await made(api)
    path = f"/v1/series/{view['id']}"

    answers = [
        await api.call("POST", f"{path}/skip", {"occurrence": "2027-01-16"}),
        await api.call("POST", f"{path}/unskip", {"occurrence": FIRST_MS + DAY}),
        await api.call("POST", f"{path}/change", {"occurrence": "2027-01-16", "duration": "1h"}),
        await api.call("POST", f"{path}/cancel", {"from": "2027-01-17"}),
        await api.call("POST", f"{path}/cancel"),
    ]

    assert [
        (status, answer["state"], [one["state"] for one in answer["occurrences"]]) for status, answer in answers
    ] == [
        (200, "active", ["placed", "skipped", "placed"]),
        (200, "active", ["placed", "placed", "placed"]),
        (200, "active", ["placed", "placed", "placed"]),
        (200, "active", ["placed", "placed"]),
        (200, "ended", []),
    ]
    assert answers[2][1]["occurrences"][1]["end"] == FIRST_MS + DAY + HOUR
    assert (await api.call("GET", path))[1] == answers[-1][1]


async def test_lists_come_in_pages_and_how_far_ahead_is_shown_can_be_chosen(api: Api) -> None:
    ids = []
    for _ in range(3):
        api.clock.ms += 1
        ids.append((await made(api))["id"])

    _, first = await api.call("GET", "/v1/series?tenantId=acme&limit=2")
    _, second = await api.call("GET", f"/v1/series?tenantId=acme&limit=2&cursor={first['nextCursor']}")

    assert [one["id"] for one in first["items"] + second["items"]] == ids
    assert "nextCursor" not in second
    assert [len(one["occurrences"]) for one in first["items"]] == [1, 1]
    assert len((await api.call("GET", f"/v1/series/{ids[0]}?occurrences=2"))[1]["occurrences"]) == 2


async def test_the_key_of_the_header_makes_one_series(api: Api) -> None:
    await api.join("a1")
    key = {"Idempotency-Key": "nightly"}
    _, first = await api.call("POST", "/v1/series", ASKED, **key)
    before = await api.rows()

    status, again = await api.call("POST", "/v1/series", ASKED, **key)
    mismatch, other = await api.call("POST", "/v1/series", {**ASKED, "at": "11:00"}, **key)

    assert (status, again["id"]) == (201, first["id"])
    assert (mismatch, other["code"]) == (422, "IDEMPOTENCY_MISMATCH")
    assert await api.rows() == before


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rule": "FREQ=SECONDLY"}, "rule"),
    ({"rule": 7}, "rule"),
    ({"rule": "FREQ=DAILY;COUNT=3;" + "X" * 300}, "rule"),
    ({"at": "8:00"}, "at"),
    ({"at": "24:00"}, "at"),
    ({"at": None}, "at"),
    ({"zone": "Berlin"}, "zone"),
    ({"firstDay": "18.01.2027"}, "firstDay"),
    ({"firstDay": "2027-13-01"}, "firstDay"),
    ({"firstDay": "0001-01-01"}, "firstDay"),
    ({"duration": None}, "duration"),
    ({"start": "+2h"}, "start"),
    ({"devices": []}, "devices"),
    ({"devices": [{"count": 1, "profile": "1g.10gb"}]}, "devices.0.profile"),
    ({"gang": {"size": 5, "segment": {"size": 2, "topologyKey": "rack"}}}, "gang.segment.size"),
    ({"tenantId": "../acme"}, "tenantId"),
]


async def test_what_is_wrong_with_a_series_is_named(api: Api) -> None:
    before = await api.rows()

    for changed, path in WRONG:
        asked = {key: value for key, value in {**ASKED, **changed}.items() if value is not None}
        status, problem = await api.call("POST", "/v1/series", asked)
        assert (status, problem["code"], problem["errors"][0]["path"]) == (400, "INVALID_INPUT", path), changed

    assert await api.rows() == before


WRONG_DECISIONS: list[tuple[str, dict[str, Any], str]] = [
    ("skip", {}, "occurrence"),
    ("skip", {"occurrence": None}, "occurrence"),
    ("skip", {"occurrence": -1}, "occurrence"),
    ("skip", {"occurrence": 2**60}, "occurrence"),
    ("unskip", {"occurrence": "yesterday"}, "occurrence"),
    ("skip", {"occurrence": "0001-01-01"}, "occurrence"),
    ("unskip", {"occurrence": "1969-12-31"}, "occurrence"),
    ("skip", {"occurrence": "1970-01-01"}, "occurrence"),
    ("skip", {"occurrence": "9999-12-31"}, "occurrence"),
    ("change", {"occurrence": "2027-01-16", "end": "+2h"}, "end"),
    ("change", {"occurrence": "2027-01-16"}, "start"),
    ("cancel", {"from": "2027-02-30"}, "from"),
    ("cancel", {"from": "later"}, "from"),
    ("cancel", {"since": "2027-02-03"}, "since"),
]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
async def test_what_is_wrong_with_a_decision_is_named(api: Api, zone: str) -> None:
    await api.join("a1")  # what is made is placed, and stays as it is
    view = await made(api, zone=zone)
    before = await api.rows()

    for verb, body, path in WRONG_DECISIONS:
        status, problem = await api.call("POST", f"/v1/series/{view['id']}/{verb}", body)
        assert (status, problem["code"], problem["errors"][0]["path"]) == (400, "INVALID_INPUT", path), body

    assert await api.rows() == before


async def test_a_series_that_nobody_made_is_not_found(api: Api) -> None:
    occurrence: dict[str, Any] = {"occurrence": FIRST_MS}
    calls = [("GET", "", None), ("POST", "/skip", occurrence), ("POST", "/unskip", occurrence)]
    calls += [("POST", "/change", {**occurrence, "start": "now"}), ("POST", "/cancel", {})]

    for method, verb, body in calls:
        status, problem = await api.call(method, f"/v1/series/series_x{verb}", body)
        assert (status, problem["code"]) == (404, "NOT_FOUND")
        assert "muster series" in problem["detail"]
