"""On which labels a gang agrees, over HTTP: which level was got, and what each member agrees on with its segment."""

from typing import Any

from muster_shared.wire import FABRIC_DOMAIN
from tests.support.coordinator_api import Api

ONE = {"tenantId": "acme", "devices": [{"count": 1}], "duration": "1h"}


async def racks(api: Api, **nodes: str) -> None:
    """Let nodes join in the rack that each names, in the fabric of the name's first letter."""
    for name, rack in nodes.items():
        await api.join(name, fabric=f"fabric-{name[0]}.1")
        await api.call("PUT", f"/v1/nodes/{name}/labels", {"labels": {"rack": rack}})


async def asked(api: Api, gang: dict[str, Any], start: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a preview says of a gang, and the reservation that is then made of it."""
    body = {**ONE, "gang": gang, "start": start}
    _, told = await api.call("POST", "/v1/capacity/preview", body)
    status, made = await api.call("POST", "/v1/reservations", body)
    assert status == 201
    return told, made


async def test_the_level_that_was_got_is_told_by_preview_and_reservation(api: Api) -> None:
    await racks(api, a1="r1", a2="r2", b1="r1", b2="r1")
    levels = [{"key": FABRIC_DOMAIN, "mode": "preferred"}, {"key": "rack", "mode": "preferred"}]

    found = [await asked(api, {"size": size, "topologyKeys": levels}, f"+{size}h") for size in (2, 3, 4)]
    required = await asked(api, {"size": 4, "topologyKey": "rack"}, "+6h")

    assert [list(told["topology"]) for told, _ in found] == [[FABRIC_DOMAIN], ["rack"], []]
    assert [made["topology"] for _, made in found] == [told["topology"] for told, _ in found]
    assert [len(made["members"]) for _, made in found] == [2, 3, 4]
    assert (required[0]["fits"], required[1]["state"]) == (False, "pending")


async def test_members_tell_their_segment_and_all_that_the_gang_agrees_on(api: Api) -> None:
    await racks(api, a1="r1", a2="r1", b1="r1", b2="r1", c1="r2", c2="r2")
    gang = {"size": 4, "topologyKey": "rack", "segment": {"size": 2, "topologyKey": FABRIC_DOMAIN}}

    told, made = await asked(api, gang, "+1h")
    _, shown = await api.call("GET", f"/v1/reservations/{made['id']}")

    assert (made["state"], made["topology"], told["topology"]) == ("placed", {"rack": "r1"}, {"rack": "r1"})
    agreed = [(one["nodeName"][0], one["topology"]) for one in shown["members"]]
    assert sorted(name for name, _ in agreed) == ["a", "a", "b", "b"]
    assert all(one == {"rack": "r1", FABRIC_DOMAIN: f"fabric-{name}.1"} for name, one in agreed)
    assert [one["topology"] for one in told["members"]] == [one["topology"] for one in made["members"]]
    assert shown["gang"]["segment"] == gang["segment"]
