"""`muster reserve` and `preview` for several kinds of devices, keys and segments, and the nearest yes."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from muster_coordinator.service import bodies
from muster_shared.codec import decode
from tests.support.canned import NOW_MS, Coordinator, coordinator_running, member, node, reservation

HOUR_MS = 3_600_000
WHO = ("--tenant", "acme", "--for", "3h")


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        coordinator.answer("POST /v1/reservations", reservation(), 201)
        yield coordinator


@pytest.mark.parametrize(
    ("flags", "devices"),
    [
        (("--mig", "1g.10gb:2"), [{"class": "mig", "count": 2, "profile": "1g.10gb"}]),
        (("--mig", "7g.80gb"), [{"class": "mig", "count": 1, "profile": "7g.80gb"}]),
        (("--slots", "3"), [{"class": "slot", "count": 3}]),
        (
            ("--gpus", "8", "--topology", "numa", "--mig", "1g.10gb:1", "--mig", "2g.20gb:1"),
            [
                {"class": "gpu", "count": 8, "topology": "numa"},
                {"class": "mig", "count": 1, "profile": "1g.10gb"},
                {"class": "mig", "count": 1, "profile": "2g.20gb"},
            ],
        ),
        (
            ("--devices", "class=gpu,count=2,model=L40S,memoryGib=48", "--devices", "count=1"),
            [{"class": "gpu", "count": 2, "model": "L40S", "memoryGib": 48}, {"count": 1}],
        ),
    ],
)
async def test_each_kind_of_devices_arrives_in_a_request_that_the_api_accepts(
    coordinator: Coordinator, flags: tuple[str, ...], devices: list[dict[str, object]]
) -> None:
    result = await coordinator.muster("reserve", *WHO, *flags)

    assert (result.exit_code, result.stderr) == (0, "")
    assert coordinator.asked[0].body["devices"] == devices
    decode(bodies.ReservationRequest, json.dumps(coordinator.asked[0].body))


async def test_keys_and_segments_arrive_as_they_were_ordered(coordinator: Coordinator) -> None:
    await coordinator.muster(
        *("reserve", *WHO, "--gpus", "4", "--gang", "32", "--same", "room", "--same", "row"),
        *("--prefer", "fabric.domain", "--prefer", "rack", "--segment", "16:leaf"),
    )

    body = coordinator.asked[0].body
    assert body["gang"] == {
        "size": 32,
        "topologyKey": "room",
        "topologyKeys": [
            {"key": "row", "mode": "required"},
            {"key": "fabric.domain", "mode": "preferred"},
            {"key": "rack", "mode": "preferred"},
        ],
        "segment": {"size": 16, "topologyKey": "leaf"},
    }
    decode(bodies.ReservationRequest, json.dumps(body))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "--gpus, --mig, --slots or --devices"),
        (("--slots", "3", "--model", "H100"), "--devices class=slot"),
        (("--mig", "1g.10gb:2", "--memory-gib", "40"), "--devices class=slot"),
        (("--devices", "count=2", "--topology", "numa"), "--devices class=slot"),
        (("--mig", "1g.10gb:none"), "PROFILE:N"),
        (("--mig", ":2"), "PROFILE:N"),
        (("--gpus", "1", "--segment", "rack"), "N:LABEL"),
        (("--gpus", "1", "--segment", "0:rack"), "N:LABEL"),
        (("--devices", "count=two"), "count is a number"),
        (("--devices", "count=1,count=2"), "given twice"),
        (("--devices", "class=gpu"), "says no count"),
        (("--devices", "count=1,colour=red"), "none of class, count"),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    coordinator: Coordinator, flags: tuple[str, ...], said: str
) -> None:
    result = await coordinator.muster("reserve", *WHO, *flags)

    assert (result.exit_code, coordinator.asked) == (2, [])
    assert said in result.stderr


async def test_the_nearest_yes_is_told_with_what_it_would_cost(coordinator: Coordinator) -> None:
    start_ms = NOW_MS + 2 * HOUR_MS
    near = {
        "start": NOW_MS,
        "end": NOW_MS + 3 * HOUR_MS,
        "gangSize": 4,
        "topology": {"rack": "r1"},
        "quotaMilli": 32_000,
    }
    later = {**near, "change": "start", "start": start_ms, "end": start_ms + 3 * HOUR_MS}
    others = [
        later,
        {**near, "change": "duration", "end": NOW_MS + HOUR_MS},
        {**near, "change": "gangSize", "gangSize": 1, "topology": {}, "quotaMilli": 143},
        {**near, "change": "topology", "topology": {"room": "1", "row": "b"}},
        {**near, "change": "topology", "topology": {}},
    ]
    condition = {"type": "Unschedulable", "reason": "doesNotFit", "message": "no gang of 4 nodes fits"}
    answer = {
        "fits": False,
        "start": NOW_MS,
        "end": NOW_MS,
        "asOf": NOW_MS,
        "condition": condition,
        "nearest": others,
    }
    decode(bodies.PreviewView, json.dumps(answer))
    coordinator.answer("POST /v1/capacity/preview", answer)

    result = await coordinator.muster("preview", *WHO, "--gpus", "8", "--gang", "4", "--same", "rack")

    assert result.exit_code == 4
    assert result.stdout.endswith(
        "NEAREST                      START  FOR  GANG  TOPOLOGY      GPUS\n"
        "starting in 2h               in 2h  3h   4     rack=r1       32\n"
        "for 1h from now              now    1h   4     rack=r1       32\n"
        "a gang of 1                  now    3h   1     -             0.143\n"
        "with --same room --same row  now    3h   4     room=1 row=b  32\n"
        "without --same               now    3h   4     -             32\n"
    )


async def test_of_a_preview_that_fits_the_other_places_are_told(coordinator: Coordinator) -> None:
    other = {
        "change": "topology",
        "start": NOW_MS,
        "end": NOW_MS + HOUR_MS,
        "gangSize": 2,
        "topology": {"rack": "r2"},
        "quotaMilli": 2_000,
    }
    window = {"start": NOW_MS, "end": NOW_MS + HOUR_MS, "asOf": NOW_MS}
    answer = {"fits": True, **window, "members": [member("a"), member("b")], "nearest": [other]}
    decode(bodies.PreviewView, json.dumps(answer))
    coordinator.answer("POST /v1/capacity/preview", answer)

    table = await coordinator.muster("preview", *WHO, "--gpus", "1", "--gang", "2", "--same", "rack")
    machine = await coordinator.muster("preview", *WHO, "--gpus", "1", "--gang", "2", "--same", "rack", "-o", "json")

    assert table.stdout.splitlines()[-1].split() == ["in", "r2", "now", "1h", "2", "rack=r2", "2"]
    assert json.loads(machine.stdout)["nearest"] == [other]


async def test_members_of_segments_say_which_one(coordinator: Coordinator) -> None:
    members = [member(name, topology={"room": "1", "leaf": leaf}) for name, leaf in (("a", "x"), ("b", "y"))]
    coordinator.answer("GET /v1/reservations/rsv_1", reservation(topology={"room": "1"}, members=members))

    result = await coordinator.muster("get", "rsv_1")

    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["NODE", "BINDING", "DEVICES", "ALLOCATION", "SEGMENT", "REASON"] in lines
    assert [line[4] for line in lines[-2:]] == ["x", "y"]


async def test_slots_tell_what_the_node_offers_from_then_on(coordinator: Coordinator) -> None:
    coordinator.answer("PUT /v1/nodes/gpu-01/slots", node(offers={"gpu": 7, "slot": 4}))

    result = await coordinator.muster("nodes", "slots", "gpu-01", "--shares", "4", "--device", "GPU-0001")

    assert (result.exit_code, result.stderr) == (0, "gpu-01 offers 7 gpu, 4 slot.\n")
    assert coordinator.asked[0].body == {"shares": 4, "device": "GPU-0001"}
    decode(bodies.NodeSlots, json.dumps(coordinator.asked[0].body))


async def test_a_node_is_removed_only_by_who_means_it(coordinator: Coordinator) -> None:
    coordinator.answer("DELETE /v1/nodes/gpu-01", None, 204)

    unsure = await coordinator.muster("nodes", "remove", "gpu-01", "--reason", "sold")
    sure = await coordinator.muster("nodes", "remove", "gpu-01", "--reason", "sold", "--yes")

    forced = await coordinator.muster("nodes", "remove", "gpu-01", "--force", "--yes")

    assert (unsure.exit_code, sure.exit_code, forced.exit_code) == (2, 0, 0)
    assert [asked.call for asked in coordinator.asked] == [
        "DELETE /v1/nodes/gpu-01?reason=sold",
        "DELETE /v1/nodes/gpu-01?force=true",
    ]
    assert sure.stderr == "Removed gpu-01.\n"
