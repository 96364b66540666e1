"""On which labels a gang agrees: all that are required, the first preferred one that can be had, and segments."""

import pytest

from muster_coordinator.core.model import Policy
from muster_coordinator.service.bodies import GangRequest, ReservationRequest, ReservationView, Segment, TopologyKey
from muster_coordinator.service.draft import drafted
from muster_shared.errors import Code, Problem
from muster_shared.wire import FABRIC_DOMAIN
from tests.support.service_world import START_MS, World, asks


def in_levels(size: int, *preferred: str, required: str | None = None, start: str = "+1h") -> ReservationRequest:
    keys = [TopologyKey(key=key, mode="preferred") for key in preferred]
    return asks(start=start).model_copy(
        update={"gang": GangRequest(size=size, topology_key=required, topology_keys=keys)}
    )


def in_segments(size: int, segment: int, *, required: str | None = None) -> ReservationRequest:
    cut = Segment(size=segment, topology_key=FABRIC_DOMAIN)
    return asks(start="+1h").model_copy(update={"gang": GangRequest(size=size, topology_key=required, segment=cut)})


async def rack_of(world: World, racks: str, *, nodes: str) -> None:
    """Let nodes join: `a1` in fabric a, in the rack that stands at its place; `-` is no rack."""
    for name, rack in zip(nodes.split(), racks.split(), strict=True):
        agent = await world.join(name, fabric=f"fabric-{name[0]}.1")
        await world.label(agent, row="row-1", **({} if rack == "-" else {"rack": rack}))


def fabrics(view: ReservationView) -> list[str]:
    """Return the fabric of each member, in the order of the ranks."""
    return [member.topology[FABRIC_DOMAIN] for member in view.members]


async def test_the_narrowest_preferred_level_that_can_be_had_is_got(world: World) -> None:
    await rack_of(world, "r1 r2 r1 r1", nodes="a1 a2 b1 b2")

    two = await world.reserve(in_levels(2, FABRIC_DOMAIN, "rack", start="+1h"))
    three = await world.reserve(in_levels(3, FABRIC_DOMAIN, "rack", start="+3h"))
    four = await world.reserve(in_levels(4, FABRIC_DOMAIN, "rack", start="+5h"))

    assert [list(one.topology) for one in (two, three, four)] == [[FABRIC_DOMAIN], ["rack"], []]
    assert three.topology == {"rack": "r1"}
    assert {member.topology["rack"] for member in three.members} == {"r1"}
    assert [len(one.members) for one in (two, three, four)] == [2, 3, 4]


async def test_what_is_required_is_had_on_every_level(world: World) -> None:
    await rack_of(world, "r1 r1 r1 r2", nodes="a1 a2 b1 b2")

    both = await world.reserve(in_levels(2, FABRIC_DOMAIN, required="rack", start="+1h"))
    least = await world.reserve(in_levels(3, FABRIC_DOMAIN, required="rack", start="+3h"))
    none = await world.reserve(in_levels(4, FABRIC_DOMAIN, required="rack", start="+5h"))

    assert both.topology == {"rack": "r1", FABRIC_DOMAIN: "fabric-a.1"}
    assert least.topology == {"rack": "r1"}
    assert (none.state, none.topology_value) == ("pending", None)
    assert none.condition is not None
    assert none.condition.message.startswith("no gang of 4 nodes fits in one rack (at most 3 nodes fit together)")


async def test_a_gang_in_segments_takes_whole_segments_of_each_fabric(world: World) -> None:
    await rack_of(world, "r1 r1 r1 r1 r1 r1", nodes="a1 a2 a3 b1 b2 b3")

    four = await world.reserve(in_segments(4, 2))
    rest = await world.reserve(in_segments(2, 2))

    assert sorted(fabrics(four)) == ["fabric-a.1"] * 2 + ["fabric-b.1"] * 2
    assert four.topology == {}
    assert (rest.state, four.state) == ("pending", "placed")
    assert rest.condition is not None
    assert "2 by 2 in one fabric.domain (at most 0 nodes fit together)" in rest.condition.message


async def test_segments_keep_to_the_value_that_the_whole_gang_needs(world: World) -> None:
    await rack_of(world, "r1 r1 r2 r2 r2 r2", nodes="a1 a2 b1 b2 c1 c2")

    four = await world.reserve(in_segments(4, 2, required="rack"))
    more = await world.reserve(in_segments(6, 2, required="rack"))

    assert four.topology == {"rack": "r2"}
    assert sorted(set(fabrics(four))) == ["fabric-b.1", "fabric-c.1"]
    assert {member.topology["rack"] for member in four.members} == {"r2"}
    assert more.state == "pending"


async def test_a_repair_of_a_gang_in_segments_stays_in_the_segment(world: World) -> None:
    await rack_of(world, "r1 r1 r1 r1 r1 r1", nodes="a1 a2 a3 b1 b2 b3")
    placed = await world.reserve(in_segments(4, 2))
    before = {member.node_name: member.topology[FABRIC_DOMAIN] for member in placed.members}
    victim = next(name for name, fabric in before.items() if fabric == "fabric-b.1")

    world.agents[victim].hold(0)
    await world.agents[victim].report()
    await world.settle()

    repaired = await world.get(placed.id)
    after = {member.node_name: member.topology[FABRIC_DOMAIN] for member in repaired.members}
    (new,) = after.keys() - before.keys()
    assert (repaired.state, before.keys() - after.keys()) == ("placed", {victim})
    assert after[new] == "fabric-b.1"
    assert world.agents[new].fabric == "fabric-b.1"


async def test_a_repair_moves_whole_segments_where_theirs_has_no_room(world: World) -> None:
    await rack_of(world, "r1 r1 r1 r1 r1 r1", nodes="a1 a2 b1 b2 c1 c2")
    placed = await world.reserve(in_segments(4, 2))
    used = set(fabrics(placed))
    victim = placed.members[0]

    world.agents[victim.node_name].hold(0)
    await world.agents[victim.node_name].report()
    await world.settle()

    repaired = await world.get(placed.id)
    assert repaired.state == "placed"
    assert set(fabrics(repaired)) == {"fabric-a.1", "fabric-b.1", "fabric-c.1"} - {victim.topology[FABRIC_DOMAIN]}
    assert len(used) == 2


async def test_a_member_that_leaves_its_segment_is_at_risk_and_moved(world: World) -> None:
    await rack_of(world, "r1 r1 r1 r1 r1 r1", nodes="a1 a2 a3 b1 b2 b3")
    placed = await world.reserve(in_segments(4, 2))
    victim = world.agents[placed.members[0].node_name]
    victim.fabric = "fabric-z.1"

    await victim.report()
    await world.settle()

    repaired = await world.get(placed.id)
    assert victim.name not in {member.node_name for member in repaired.members}
    assert await world.story(placed.id) == ["created", "placed", "at_risk", "repaired"]


async def test_a_repair_keeps_the_level_that_was_got(world: World) -> None:
    await rack_of(world, "r1 r2 r3 r1 r2 r3", nodes="a1 a2 a3 b1 b2 b3")
    placed = await world.reserve(in_levels(2, FABRIC_DOMAIN))
    victim = world.agents[placed.members[0].node_name]

    await world.cordon(victim)
    await world.settle()

    repaired = await world.get(placed.id)
    assert repaired.topology == placed.topology
    assert {world.agents[member.node_name].fabric for member in repaired.members} == {placed.topology_value}
    assert len({one.node_id for one in repaired.members} & {one.node_id for one in placed.members}) == 1


@pytest.mark.parametrize(
    ("gang", "path"),
    [
        (GangRequest(size=5, segment=Segment(size=2, topology_key="rack")), "gang.segment.size"),
        (
            GangRequest(size=2, topology_key="rack", topology_keys=[TopologyKey(key="rack")]),
            "gang.topologyKeys",
        ),
        (
            GangRequest(size=2, topology_key="rack", segment=Segment(size=2, topology_key="rack")),
            "gang.topologyKeys",
        ),
    ],
    ids=["segments that do not divide it", "a key twice", "a segment's key twice"],
)
def test_a_gang_that_contradicts_itself_is_refused_by_field(gang: GangRequest, path: str) -> None:
    with pytest.raises(Problem) as refusal:
        drafted(asks().model_copy(update={"gang": gang}), START_MS, Policy())

    assert (refusal.value.code, refusal.value.errors[0].path) == (Code.INVALID_INPUT, path)
