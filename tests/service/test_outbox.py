"""The outbox: what is queued with an event's number, claimed by one, tried by the table, and never lost."""

import asyncio
from collections import defaultdict
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, select

from muster_coordinator.core.webhook.retries import RETRY_AFTER_MS
from muster_coordinator.core.webhook.targets import Allowed
from muster_coordinator.service import look
from muster_coordinator.service.nodes import operate
from muster_coordinator.service.outward import outbox, webhooks
from muster_coordinator.service.outward.bodies import DeliveryView, ReplayRequest, WebhookRequest
from muster_coordinator.service.outward.outbox import BATCH, CLAIM_MS, KEPT_MS, Claimed, Letter, Outcome
from muster_coordinator.store import relay
from muster_coordinator.store.tables import DELIVERY, EVENT
from muster_shared.errors import Code, Problem
from tests.support.service_world import DAY, HOUR, MINUTE, Coordinator, World

Judge = Callable[[Letter], str | None]


def takes(_letter: Letter) -> None:
    return None


def refuses(_letter: Letter) -> str:
    return "it answered 503"


async def receiver(world: World, name: str = "ops", *types: str) -> str:
    wanted = WebhookRequest(name=name, url="https://hooks.example/x", types=list(types))
    return await world.coordinator.write(webhooks.create, wanted, world.clock.new_secret(), Allowed())


async def publish(world: World) -> None:
    while await world.coordinator.database.write(relay.publish, 100):
        pass


async def happen(world: World, *names: str) -> None:
    """Let each node be cordoned or opened again, and publish that."""
    for name in names:
        node = await world.coordinator.database.read(look.node, world.clock.moment(), name)
        await world.coordinator.write(
            operate.set_intent, name, "schedulable" if node.intent == "cordoned" else "cordoned", None
        )
    await publish(world)


async def claimed(world: World, webhook_id: str) -> Claimed | None:
    return await world.coordinator.write(outbox.claim, webhook_id)


async def deliver(world: World, webhook_id: str, judge: Judge) -> list[Letter]:
    """Do what the loop does with one claim; return what was really sent."""
    found = await claimed(world, webhook_id)
    outcomes: list[Outcome] = []
    failed: set[str] = set()
    for letter in found.letters if found else ():
        subject = letter.event.subject
        error = judge(letter)
        outcomes.append(Outcome(letter, error, is_sent=subject not in failed))
        failed |= {subject} if error else set()
    if outcomes:
        await world.coordinator.write(outbox.settle, webhook_id, outcomes)
    return [outcome.letter for outcome in outcomes if outcome.is_sent]


async def drain(world: World, webhook_id: str, judge: Judge = takes) -> list[Letter]:
    sent: list[Letter] = []
    while some := await deliver(world, webhook_id, judge):
        sent += some
    return sent


async def listed(world: World, state: str | None = None) -> list[DeliveryView]:
    return await world.coordinator.database.read(webhooks.deliveries, "ops", state=state, before=None, limit=500)


def seqs(letters: list[Letter]) -> list[int]:
    return [letter.event.seq for letter in letters]


async def test_an_event_is_queued_with_its_number_for_each_receiver_that_wants_it(world: World) -> None:
    every = await receiver(world)
    some = await receiver(world, "some", "node.cordoned", "webhook.")
    await world.join("n1")
    await happen(world, "n1")

    def queued(connection: Connection) -> dict[str, list[str]]:
        rows = connection.execute(
            select(DELIVERY.c.webhook_id, EVENT.c.type).join(EVENT, EVENT.c.seq == DELIVERY.c.seq).order_by(EVENT.c.seq)
        )
        found: defaultdict[str, list[str]] = defaultdict(list)
        for webhook_id, kind in rows:
            found[webhook_id].append(kind)
        return found

    found = await world.coordinator.database.read(queued)
    assert found[some] == ["webhook.created", "node.cordoned"]  # of the other one: nobody is told of itself
    assert found[every] == ["pool.created", "webhook.created", "node.joined", "node.inventory_changed", "node.cordoned"]


async def test_a_receiver_that_is_switched_off_is_queued_nothing_and_keeps_what_waits(world: World) -> None:
    ops = await receiver(world, "ops", "node.")
    await world.join("n1")
    await happen(world, "n1")
    waiting = len(await listed(world, "waiting"))
    await world.coordinator.write(webhooks.enable, "ops", None, enabled=False)
    await happen(world, "n1")
    while_off = await deliver(world, ops, takes)
    await world.coordinator.write(webhooks.enable, "ops", None, enabled=True)

    assert (waiting, while_off, len(await drain(world, ops))) == (3, [], 3)


async def test_what_concerns_one_subject_arrives_in_order_and_others_pass_it(world: World) -> None:
    ops = await receiver(world, "ops", "node.cordoned", "node.schedulable")
    one, _ = await world.join_all("n1 n2")
    await happen(world, "n1", "n1", "n2")

    first = await deliver(world, ops, lambda letter: "no" if letter.event.subject == one.node_id else None)
    await happen(world, "n2", "n1")
    meanwhile = await drain(world, ops)
    world.clock.ms += 6_000
    later = await drain(world, ops)

    assert [letter.event.subject for letter in first] == [one.node_id, world.agents["n2"].node_id]
    assert {letter.event.subject for letter in meanwhile} == {world.agents["n2"].node_id}
    assert [letter.event.subject for letter in later] == [one.node_id] * 3
    assert seqs(later) == sorted(seqs(later))
    assert [letter.attempts for letter in later] == [2, 1, 1]


async def test_a_claim_is_one_coordinators_until_its_time_is_over(world: World) -> None:
    ops = await receiver(world, "ops", "node.")
    await world.join("n1")
    await publish(world)

    first = await claimed(world, ops)
    second = await claimed(world, ops)
    world.clock.ms += CLAIM_MS
    third = await claimed(world, ops)

    assert first is not None
    assert third is not None
    assert second is None
    assert [letter.attempts for letter in first.letters + third.letters] == [1, 1, 2, 2]
    # The first one wakes up and tells what became of letters that are another's by now.
    await world.coordinator.write(outbox.settle, ops, [Outcome(letter, "late") for letter in first.letters])
    world.clock.ms += MINUTE
    assert await claimed(world, ops) is None
    await world.coordinator.write(outbox.settle, ops, [Outcome(letter, None) for letter in third.letters])
    assert [one.error for one in await listed(world, "delivered")] == [None, None]


async def test_two_coordinators_never_claim_the_same_delivery(world: World, database_url: str) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("one coordinator serves one SQLite file")
    ops = await receiver(world, "ops", "node.")
    await world.join_all(" ".join(f"n{number}" for number in range(20)))
    await publish(world)
    other = Coordinator(database_url, world.clock, "second")

    try:
        claims = await asyncio.gather(
            *(one.write(outbox.claim, ops) for one in (world.coordinator, other) for _ in range(4))
        )
    finally:
        await other.database.close()

    numbers = [letter.number for found in claims if found for letter in found.letters]
    assert len(numbers) == len(set(numbers)) == 40
    by_subject: defaultdict[str, set[int]] = defaultdict(set)
    for holder, found in enumerate(claims):
        for letter in found.letters if found else ():
            by_subject[letter.event.subject].add(holder)
    # A subject that is under way at one is left alone by the other, so it needs another round for the rest.
    assert all(len(holders) == 1 for holders in by_subject.values())


async def test_a_receiver_that_fails_is_tried_with_one_delivery_at_a_time(world: World) -> None:
    ops = await receiver(world, "ops", "node.")
    await world.join_all("n1 n2 n3")
    await publish(world)

    await deliver(world, ops, refuses)
    await world.join("n4")
    await publish(world)
    probe = await deliver(world, ops, refuses)
    world.clock.ms += 6_000
    back = await deliver(world, ops, takes)
    rest = await claimed(world, ops)

    assert (len(probe), len(back)) == (1, 1)
    assert rest is not None
    assert len(rest.letters) > 1


async def test_a_receiver_that_is_down_for_a_day_loses_nothing(world: World) -> None:
    """F27: after its return all arrive, in order for each subject, under the same ids."""
    ops = await receiver(world, "ops", "node.cordoned", "node.schedulable")
    names = [f"n{number}" for number in range(5)]
    await world.join_all(" ".join(names))
    begins_ms = world.now_ms
    tried = 0
    while world.now_ms < begins_ms + DAY:
        await happen(world, *names)
        for _ in range(3):
            tried += len(await deliver(world, ops, refuses))
            world.clock.ms += 20 * MINUTE
    events = len(await listed(world))
    assert not await listed(world, "dead")

    sent = await drain(world, ops)
    world.clock.ms += CLAIM_MS
    sent += await drain(world, ops)

    assert len(sent) == events
    assert sorted(seqs(sent)) == sorted(one.seq for one in await listed(world, "delivered"))
    for agent in world.agents.values():
        mine = seqs([letter for letter in sent if letter.event.subject == agent.node_id])
        assert mine == sorted(mine)
    assert tried > 24


async def test_a_delivery_that_is_refused_for_a_day_is_given_up_told_and_replayed(world: World) -> None:
    ops = await receiver(world, "ops", "node.joined")
    watcher = await receiver(world, "watcher", "webhook.dead_letter")
    await world.join("n1")
    await publish(world)
    begins_ms = world.now_ms
    attempts = 0
    while waiting := await listed(world, "waiting"):
        world.clock.ms = max(world.now_ms, waiting[0].next or 0)
        attempts += len(await deliver(world, ops, refuses))
    await publish(world)
    told = await drain(world, watcher)

    assert attempts == len(RETRY_AFTER_MS) + 1
    assert DAY < world.now_ms - begins_ms < DAY + 5 * HOUR
    (dead,) = await listed(world, "dead")
    assert (dead.error, dead.next) == ("it answered 503", None)
    assert [letter.event.data for letter in told] == [
        {"seq": dead.seq, "type": "node.joined", "error": "it answered 503"}
    ]
    assert await world.coordinator.write(webhooks.replay, "ops", ReplayRequest()) == 1
    assert [letter.event.id for letter in await drain(world, ops)] == [dead.event_id]
    assert await world.coordinator.write(webhooks.replay, "ops", ReplayRequest()) == 0


async def test_after_an_outage_nothing_waits_for_its_turn(world: World) -> None:
    ops = await receiver(world, "ops", "node.joined")
    await world.join_all("n1 n2 n3")
    await publish(world)
    for _ in range(12):  # in turn, each fails until it would wait for hours
        world.clock.ms += 10 * MINUTE
        await deliver(world, ops, refuses)
    await world.join("n4")
    await publish(world)

    assert len(await drain(world, ops)) == 4


async def test_one_poisonous_event_does_not_wake_what_waits_again_and_again(world: World) -> None:
    ops = await receiver(world, "ops", "node.cordoned", "node.schedulable")
    poison, _ = await world.join_all("n1 n2")
    await happen(world, "n1")
    tried: list[Letter] = []

    for _ in range(60):  # an hour in which the receiver takes everything else
        tried += await drain(world, ops, lambda letter: "no" if letter.event.subject == poison.node_id else None)
        await happen(world, "n2")
        tried += await drain(world, ops, lambda letter: "no" if letter.event.subject == poison.node_id else None)
        world.clock.ms += MINUTE

    poisoned = [letter for letter in tried if letter.event.subject == poison.node_id]
    assert len(poisoned) <= len([wait for wait in RETRY_AFTER_MS if wait < HOUR]) + 1


async def test_what_the_log_has_is_sent_again_from_a_number_on(world: World) -> None:
    ops = await receiver(world, "ops", "node.joined", "webhook.")
    await world.join_all("n1 n2")
    await publish(world)
    before = await drain(world, ops)
    await world.coordinator.write(webhooks.enable, "ops", None, enabled=False)
    await world.join("n3")
    await publish(world)
    await world.coordinator.write(webhooks.enable, "ops", None, enabled=True)

    queued = await world.coordinator.write(webhooks.replay, "ops", ReplayRequest(after=before[0].event.seq))
    again = await drain(world, ops)

    assert queued == 2
    assert [letter.event.id for letter in again][:1] == [before[1].event.id]
    assert [letter.event.type for letter in again] == ["node.joined", "node.joined"]


@pytest.mark.parametrize("asked", [ReplayRequest(until=5), ReplayRequest(after=5, until=5)])
async def test_a_replay_that_means_nothing_is_refused(world: World, asked: ReplayRequest) -> None:
    await receiver(world)

    with pytest.raises(Problem) as refusal:
        await world.coordinator.write(webhooks.replay, "ops", asked)

    assert refusal.value.code is Code.INVALID_INPUT


async def test_a_receiver_that_says_it_is_gone_is_switched_off(world: World) -> None:
    ops = await receiver(world, "ops", "node.joined")
    await world.join_all("n1 n2")
    await publish(world)
    found = await claimed(world, ops)
    assert found is not None
    outcomes = [Outcome(letter, "it answered 410", is_gone=True) for letter in found.letters]

    assert await world.coordinator.write(outbox.settle, ops, outcomes)

    view = await world.coordinator.database.read(webhooks.shown, "ops")
    assert (view.enabled, view.waiting) == (False, 2)
    assert await world.story(ops) == ["created", "disabled"]


async def test_what_was_under_way_to_a_receiver_that_is_removed_is_forgotten(world: World) -> None:
    ops = await receiver(world)
    await world.join("n1")
    await publish(world)
    found = await claimed(world, ops)
    assert found is not None
    await world.coordinator.write(webhooks.remove, "ops", "no longer needed")

    settled = await world.coordinator.write(outbox.settle, ops, [Outcome(one, "no") for one in found.letters])

    assert not settled
    assert (await world.rows())["delivery"] == []
    assert await world.story(ops) == ["created", "removed"]


async def test_what_was_delivered_long_ago_is_forgotten_and_dead_letters_are_not(world: World) -> None:
    ops = await receiver(world, "ops", "node.joined")
    await world.join_all("n1 n2")
    await publish(world)
    found = await claimed(world, ops)
    assert found is not None
    await world.coordinator.write(
        outbox.settle, ops, [Outcome(found.letters[0], "no"), Outcome(found.letters[1], None)]
    )

    world.clock.ms += KEPT_MS
    await world.coordinator.write(outbox.prune)
    kept = len(await listed(world))
    world.clock.ms += CLAIM_MS + 1
    await world.coordinator.write(outbox.prune)

    assert (kept, [one.state for one in await listed(world)]) == (2, ["waiting"])


async def test_a_claim_is_no_larger_than_can_be_sent_in_its_time(world: World) -> None:
    ops = await receiver(world, "ops", "node.joined")
    await world.join_all(" ".join(f"n{number}" for number in range(BATCH + 3)), gpus=1)
    await publish(world)

    found = await claimed(world, ops)

    assert found is not None
    assert len(found.letters) == BATCH
    assert BATCH * 5_000 < CLAIM_MS
