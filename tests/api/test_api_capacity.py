"""The calendar of a pool over HTTP: the timeline of a week, and the outlook beyond it."""

import pytest

from tests.support.coordinator_api import Api
from tests.support.service_world import DAY, HOUR, MINUTE, START_MS

EIGHT = {"tenantId": "acme", "devices": [{"count": 8}], "duration": "2h"}


async def test_a_timeline_is_the_pool_its_allocatable_gpus_and_buckets_of_booked_and_free(api: Api) -> None:
    await api.join("a1")
    await api.join("a2", gpus=4)
    await api.call("POST", "/v1/reservations", {**EIGHT, "start": "+1h"})
    _, pool = await api.call("GET", "/v1/pools/default")

    status, shown = await api.call("GET", "/v1/capacity/timeline?start=now&end=%2B4h&bucket=1h")

    counts = [0, 8, 8, 0]
    assert (status, pool["allocatable"]) == (200, 12)
    assert shown == {
        "poolId": pool["id"],
        "allocatable": 12,
        "buckets": [
            {"start": START_MS + at * HOUR, "end": START_MS + (at + 1) * HOUR, "booked": booked, "free": 12 - booked}
            for at, booked in enumerate(counts)
        ],
    }


async def test_a_booking_and_its_turnaround_count_to_their_last_millisecond(api: Api) -> None:
    await api.join("a1")
    await api.call("POST", "/v1/reservations", {**EIGHT, "start": START_MS + HOUR, "duration": "59m"})

    _, shown = await api.call("GET", f"/v1/capacity/timeline?start={START_MS + HOUR}&duration=1h&bucket=59m")

    assert [bucket["booked"] for bucket in shown["buckets"]] == [8, 0]


async def test_a_week_in_half_hours_is_what_is_shown_when_nothing_else_is_asked(api: Api) -> None:
    api.clock.ms += 7 * MINUTE

    _, shown = await api.call("GET", "/v1/capacity/timeline")

    assert len(shown["buckets"]) == 336
    assert (shown["buckets"][0]["start"], shown["buckets"][-1]["end"]) == (START_MS, START_MS + 7 * DAY)


@pytest.mark.parametrize(
    ("query", "field", "says"),
    [
        ("end=%2B8d", "end", "at most 7 days and 336 buckets"),
        ("bucket=29m", "bucket", "at most 336 buckets"),
        ("end=now", "end", "not after the start"),
        ("start=%2B2h&end=%2B1h", "end", "not after the start"),
        ("start=1000&end=2000", "end", "has passed"),
        ("start=yesterday", "start", "not an instant"),
        ("bucket=0s", "bucket", "out of range"),
        ("bucket=-5m", "bucket", "not a duration"),
        ("end=%2B1h&duration=1h", "end", "either an end or a duration"),
        ("step=1h", "step", "unknown query parameter"),
    ],
)
async def test_a_window_that_cannot_be_shown_is_refused_with_what_can(
    api: Api, query: str, field: str, says: str
) -> None:
    start = "" if "start=" in query else "start=now&"
    status, refusal = await api.call("GET", f"/v1/capacity/timeline?{start}{query}")

    assert (status, refusal["code"], refusal["errors"][0]["path"]) == (400, "INVALID_INPUT", field)
    assert says in refusal["detail"]


async def test_exactly_seven_days_are_shown_and_a_millisecond_more_is_not(api: Api) -> None:
    week, _ = await api.call("GET", f"/v1/capacity/timeline?start={START_MS}&end={START_MS + 7 * DAY}")
    longer, _ = await api.call("GET", f"/v1/capacity/timeline?start={START_MS}&end={START_MS + 7 * DAY + 1}&bucket=1h")

    assert (week, longer) == (200, 400)


async def test_a_pool_that_does_not_exist_is_refused_by_both(api: Api) -> None:
    for question in ("timeline", "outlook"):
        status, refusal = await api.call("GET", f"/v1/capacity/{question}?poolId=nowhere")

        assert (status, refusal["code"]) == (404, "NOT_FOUND")


async def test_the_outlook_tells_the_largest_gang_that_is_free_for_all_of_a_bucket(api: Api) -> None:
    for name in ("a1", "a2", "a3"):
        await api.join(name, fabric="fabric-a.1")
    await api.join("b1", fabric="fabric-b.1")
    await api.call("POST", "/v1/reservations", {**EIGHT, "gang": {"size": 3}, "start": "+25h"})

    _, shown = await api.call("GET", "/v1/capacity/outlook?start=now&end=%2B72h&bucket=1d")

    assert (shown["topologyKey"], shown["allocatable"]) == ("fabric.domain", 32)
    assert shown["largestGang"] == {"fabric-a.1": [3, 1, 3], "fabric-b.1": [1, 0, 1]}
    assert [(one["booked"], one["free"], one["largestGang"], one["topologyValue"]) for one in shown["buckets"]] == [
        (0, 32, 3, "fabric-a.1"),
        (24, 8, 1, "fabric-a.1"),
        (0, 32, 3, "fabric-a.1"),
    ]


async def test_the_outlook_reaches_120_days_and_chooses_buckets_for_a_screen(api: Api) -> None:
    _, far = await api.call("GET", "/v1/capacity/outlook?start=now&duration=120d")
    _, usual = await api.call("GET", "/v1/capacity/outlook")
    status, refusal = await api.call("GET", "/v1/capacity/outlook?start=now&duration=121d")

    assert [len(one["buckets"]) for one in (far, usual)] == [30, 28]
    assert (status, "at most 120 days" in refusal["detail"]) == (400, True)
