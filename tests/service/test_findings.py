"""What an agent finds and holds nothing for is told once, and shown as long as it lasts."""

from muster_coordinator.service import look
from muster_shared.wire import Finding
from tests.support.coordinator_agent import inventory_of
from tests.support.service_world import World


async def test_a09_a_finding_is_an_event_when_it_is_new_and_stays_with_the_node(world: World) -> None:
    """A fabric that changed under a booking, with both values."""
    agent = await world.join("a1", fabric="c.5")
    await world.settle()
    moved = Finding(cause="fabricChanged", since_ms=1, former="c.5", now="c.9", message="was c.5, is c.9")
    worn = Finding(cause="manyRemaps", device="GPU-0001", since_ms=1, message="9 rows")
    for number, findings in enumerate(([moved], [moved, worn], [worn])):
        inventory = inventory_of("a1", 8, "c.5").model_copy(update={"findings": findings})
        sent = agent.next_report().model_copy(update={"inventory": inventory, "inventory_hash": f"hash-{number}"})
        await world.coordinator.take_report(agent.node_id, sent)

    told = await world.told(agent.node_id, "node.inventory_changed")
    assert [data.get("findings") for data in told[-3:]] == [
        ["fabricChanged: was c.5, is c.9"],
        ["manyRemaps: 9 rows"],
        None,
    ]
    node = await world.coordinator.database.read(look.node, world.clock.moment(), "a1")
    assert node.findings == [worn]
