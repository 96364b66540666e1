"""What fits beside what, which nodes form a gang, and what is said when nothing does."""

from collections.abc import Mapping

import pytest

from muster_coordinator.service import look
from muster_coordinator.service.bodies import ReservationView
from muster_shared.errors import Code, Problem
from tests.support.service_world import HOUR, MINUTE, World, asks

RELATIONS: Mapping[str, tuple[int, int, bool]] = {  # minutes from the booking's start, which lasts an hour
    "before": (-50, -10, True),
    "meets": (-30, 0, True),
    "overlaps": (-30, 30, False),
    "starts": (0, 30, False),
    "during": (20, 40, False),
    "finishes": (30, 60, False),
    "equals": (0, 60, False),
    "finished by": (-30, 60, False),
    "contains": (-30, 90, False),
    "started by": (0, 90, False),
    "overlapped by": (30, 90, False),
    "met by": (60, 90, True),
    "after": (70, 90, True),
}


async def test_windows_are_half_open_in_all_thirteen_relations(world: World) -> None:
    """seatsurfing 2672, Dsek 905, MAKENTNU 89, emhub 118."""
    await world.join("a1")
    base = world.now_ms + 10 * HOUR
    await world.reserve(asks(start=base, duration="1h"))
    fits = {}
    for name, (start, end, _) in RELATIONS.items():
        asked = await world.reserve(asks(start=base + start * MINUTE, end=base + end * MINUTE))
        fits[name] = asked.state == "placed"
        await world.coordinator.cancel(asked.id)

    assert fits == {name: fit for name, (_, _, fit) in RELATIONS.items()}


async def test_a_repair_uses_a_node_whose_bookings_only_touch_the_window(world: World) -> None:
    node = await world.join("a1")
    booked = await world.reserve(asks(start="+2h"))
    await world.join("a2")
    before = await world.reserve(asks(start="+1h"))
    after = await world.reserve(asks(start="+3h"))
    for one in (before, after):  # they may have been placed on either node
        await world.coordinator.cancel(one.id)
    await world.cordon(node)
    assert await world.nodes_of(booked.id) == "a2"
    await world.uncordon(node)
    node.hold(0)
    await node.report()
    for start in ("+1h", "+3h"):
        assert await world.nodes_of((await world.reserve(asks(start=start))).id) == "a2"


@pytest.mark.parametrize("value", [None, "", "00000000-0000-0000-0000-000000000000.0"], ids=str)
async def test_strangers_of_no_fabric_form_no_gang(world: World, value: str | None) -> None:
    """torchcomms 1385, azhpc-images 506: a zero or missing fabric is no fabric."""
    await world.join_all("a1 a2 a3 a4", fabric=value)

    asked = await world.reserve(asks(4))

    assert asked.state == "pending"
    assert asked.condition is not None
    assert asked.condition.message.startswith("no gang of 4 nodes fits in one fabric.domain (at most 0 nodes fit")
    assert (await world.reserve(asks())).state == "binding"


async def test_a_topology_key_that_no_node_has_is_pending_and_says_so(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")

    asked = await world.reserve(asks(2, same="rack"))

    assert asked.condition is not None
    assert (asked.state, asked.condition.reason) == ("pending", "neverFits")
    assert asked.condition.message == (
        "no gang of 2 nodes fits in one rack (at most 0 nodes fit together): 2 nodes without the label"
        "; waiting does not help, since at most 0 nodes could ever fit together"
    )


async def test_an_operators_label_makes_a_group_at_once(world: World) -> None:
    agents = await world.join_all("a1 a2")
    asked = await world.reserve(asks(2, same="rack"))
    for agent in agents:
        await world.label(agent, rack="r1")

    await world.settle()

    placed = await world.get(asked.id)
    assert (placed.state, placed.topology_value) == ("active", "r1")


async def test_what_the_agent_measures_is_not_set_by_people(world: World) -> None:
    node = await world.join("a1", fabric="fabric-a.1")
    before = await world.rows()

    with pytest.raises(Problem) as refusal:
        await world.label(node, **{"fabric.domain": "mine"})

    assert (refusal.value.code, refusal.value.errors[0].path) == (Code.INVALID_INPUT, "labels.fabric.domain")
    assert await world.rows() == before


async def test_what_an_agent_may_not_measure_steers_nothing(world: World) -> None:
    node = await world.join("a1", fabric="fabric-a.1")
    inventory = node.next_report().inventory
    assert inventory is None
    node.fabric = "fabric-b.1"
    sent = node.next_report()
    assert sent.inventory is not None
    forged = sent.inventory.model_copy(update={"labels": {**sent.inventory.labels, "rack": "r1"}})

    await world.coordinator.take_report(node.node_id, sent.model_copy(update={"inventory": forged}))

    shown = await world.coordinator.database.read(look.node, world.clock.moment(), "a1")
    assert shown.labels == {"fabric.domain": "fabric-b.1"}


async def test_a_preview_says_what_placing_would_do_and_holds_nothing(world: World) -> None:
    await world.join_all("a1 a2", fabric="fabric-a.1")
    before = await world.rows()

    yes = await world.coordinator.database.read(look.preview, world.clock.moment(), asks(2), world.coordinator.index)
    no = await world.coordinator.database.read(look.preview, world.clock.moment(), asks(3), world.coordinator.index)
    assert await world.rows() == before
    placed = await world.reserve(asks(2))
    pending = await world.reserve(asks(3))

    def members(view: ReservationView) -> list[tuple[str, list[str]]]:
        return sorted((one.node_name, one.devices) for one in view.members)

    assert (yes.fits, no.fits) == (True, False)
    assert sorted((one.node_name, one.devices) for one in yes.members) == members(placed)
    assert no.condition is not None
    assert pending.condition is not None
    assert no.condition.reason == pending.condition.reason == "neverFits"


async def test_a_rollup_counts_what_is_booked_held_and_free(world: World) -> None:
    await world.join("a1", fabric="fabric-a.1")
    held = await world.join("a2", fabric="fabric-a.1")
    held.hold(7)
    await held.report()
    await world.reserve(asks(2, gpus=3))
    await world.reserve(asks(gpus=2, start="+5h"))

    (pool,) = await world.coordinator.database.read(look.pools, world.clock.moment())

    assert (pool.nodes, pool.total, pool.allocatable, pool.free) == (2, 16, 15, 9)
    assert (pool.active, pool.reserved, pool.held) == (6, 2, {"xid": 1})
    assert pool.largest_gang == {"fabric-a.1": 0}


async def test_a_device_that_two_nodes_report_belongs_to_the_first(world: World) -> None:
    await world.join("a1")
    thief = await world.join("a2", gpus=0)
    before = await world.rows()
    thief.name, thief.gpus = "a1", 8

    with pytest.raises(Problem, match="is already reported by node 'a1'") as refusal:
        await thief.report()

    assert refusal.value.code is Code.CONFLICT
    assert await world.rows() == before
