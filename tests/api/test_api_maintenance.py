"""Maintenance windows over HTTP."""

from typing import Any

from tests.support.coordinator_api import Api
from tests.support.service_world import HOUR, START_MS

WINDOW = {"start": "+2h", "duration": "4h", "reason": "new fans"}
EIGHT = {"tenantId": "acme", "devices": [{"count": 8}], "duration": "1h"}


async def declared(api: Api, *names: str, **more: Any) -> dict[str, Any]:
    status, window = await api.call("POST", "/v1/maintenance", {**WINDOW, "nodes": list(names), **more})
    assert status == 201, window
    found: dict[str, Any] = window
    return found


async def test_a_window_is_declared_shown_listed_and_cancelled(api: Api) -> None:
    node = await api.join("a1")

    window = await declared(api, "a1")

    path = f"/v1/maintenance/{window['id']}"
    assert window == {
        "id": window["id"],
        "poolId": window["poolId"],
        "reason": "new fans",
        "state": "booked",
        "start": START_MS + 2 * HOUR,
        "end": START_MS + 6 * HOUR,
        "nodes": [{"nodeId": node.node_id, "nodeName": "a1", "booked": True, "inTheWay": []}],
        "version": 2,
        "created": START_MS,
    }
    assert await api.call("GET", path) == (200, window)
    assert (await api.call("GET", "/v1/maintenance"))[1] == {"items": [window]}
    status, cancelled = await api.call("POST", f"{path}/cancel")
    assert (status, cancelled["state"], cancelled["ended"]) == (200, "cancelled", START_MS)
    assert (await api.call("GET", "/v1/maintenance"))[1] == {"items": []}
    assert (await api.call("GET", "/v1/maintenance?all=true&poolId=default"))[1] == {"items": [cancelled]}


async def test_the_window_shows_in_the_timeline_the_preview_and_the_nodes(api: Api) -> None:
    await api.join("a1")
    await api.join("a2", gpus=4)
    window = await declared(api, "a1")

    _, shown = await api.call("GET", "/v1/capacity/timeline?start=now&duration=8h&bucket=2h")
    _, preview = await api.call("POST", "/v1/capacity/preview", {**EIGHT, "start": "+3h"})
    _, nodes = await api.call("GET", "/v1/nodes")

    assert [(one["booked"], one["free"]) for one in shown["buckets"]] == [(0, 12), (8, 4), (8, 4), (0, 12)]
    assert {"reason": "maintenance", "nodes": 1, "until": START_MS + 6 * HOUR} in preview["condition"]["blockers"]
    mark = {"id": window["id"], "reason": "new fans", "start": window["start"], "end": window["end"]}
    assert [one.get("maintenance") for one in nodes["items"]] == [mark, None]


async def test_a_window_that_is_only_declared_counts_in_the_timeline_besides_who_is_in_its_way(api: Api) -> None:
    await api.join("a1")
    _, booked = await api.call("POST", "/v1/reservations", {**EIGHT, "devices": [{"count": 2}], "start": "+3h"})
    window = await declared(api, "a1")

    _, shown = await api.call("GET", "/v1/capacity/timeline?start=%2B2h&duration=4h&bucket=1h")

    assert (window["state"], window["nodes"][0]["inTheWay"][0]["reservationId"]) == ("blocked", booked["id"])
    assert [one["booked"] for one in shown["buckets"]] == [8, 8, 8, 8]


async def test_a_preview_of_a_window_changes_nothing_and_says_who_moves(api: Api) -> None:
    await api.join("a1")
    _, booked = await api.call("POST", "/v1/reservations", {**EIGHT, "start": "+3h"})
    await api.join("a2")
    before = await api.rows()

    status, told = await api.call("POST", "/v1/maintenance/preview", {**WINDOW, "nodes": ["a1"]})

    assert (status, "id" in told, await api.rows()) == (200, False, before)
    (one,) = told["nodes"][0]["inTheWay"]
    assert (one["reservationId"], one["movesTo"]) == (booked["id"], ["a2"])


async def test_what_cannot_be_is_refused_with_the_field_and_changes_nothing(api: Api) -> None:
    await api.join("a1")
    window = await declared(api, "a1")
    before = await api.rows()
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"nodes": ["a7"]}, 404, "a7"),
        ({"nodes": []}, 400, "exactly one"),
        ({"nodes": ["a1"], "duration": "-1h"}, 400, "duration"),
        ({"nodes": ["a1"], "end": "+9h"}, 400, "either a duration or an end"),
        ({"nodes": ["a1"], "reason": ""}, 400, "reason"),
        ({"nodes": ["a1"]}, 409, window["id"]),
        ({"nodes": [], "nodeSelector": {"rack": "r7"}}, 400, "rack=r7"),
    ]

    for changed, wanted, says in cases:
        status, refusal = await api.call("POST", "/v1/maintenance", {**WINDOW, **changed})
        assert (status, says in refusal["detail"]) == (wanted, True), refusal
    for verb in ("cancel", "end"):
        assert (await api.call("POST", f"/v1/maintenance/mnt_x/{verb}"))[0] == 404
    assert (await api.call("POST", f"/v1/maintenance/{window['id']}/end"))[0] == 409
    assert await api.rows() == before


async def test_r13_a_node_whose_machine_is_gone_is_removed_by_force_and_its_booking_goes_elsewhere(api: Api) -> None:
    await api.join("a1")
    _, booked = await api.call("POST", "/v1/reservations", {**EIGHT, "start": "+30h"})
    window = await declared(api, "a1", start="+40h")
    api.clock.ms += 600_000
    await api.join("a2")

    refused, refusal = await api.call("DELETE", "/v1/nodes/a1")
    status, _ = await api.call("DELETE", "/v1/nodes/a1?force=true&reason=burnt")

    assert (refused, booked["id"] in refusal["detail"], "--force" in refusal["detail"]) == (409, True, True)
    assert status == 204
    _, moved = await api.call("GET", f"/v1/reservations/{booked['id']}")
    assert (moved["state"], [one["nodeName"] for one in moved["members"]]) == ("placed", ["a2"])
    assert (await api.call("GET", f"/v1/maintenance/{window['id']}"))[1]["nodes"] == []
