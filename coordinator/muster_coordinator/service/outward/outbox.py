"""Deliveries: who has some due, claiming them, and what became of each. Nothing here sends anything.

A claim raises `attempts` and puts `next_ms` beyond the time that sending takes. Whoever comes meanwhile finds nothing
due; should the claimer die, the next one takes over after that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import BigInteger, Connection, bindparam, delete, exists, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.webhook.retries import JITTER_PERMILLE, retry_at_ms
from muster_coordinator.service.bodies import EventView
from muster_coordinator.service.outward.events import event_view
from muster_coordinator.store import commit, outbox
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.outbox import DEAD, DELIVERED, WAITING
from muster_coordinator.store.tables import DELIVERY, EVENT, WEBHOOK

BATCH: Final = 16
"""Deliveries of one claim: enough for hundreds a second, few enough to be sent before the claim is over."""

CLAIM_MS: Final = 90_000
"""Longer than a batch takes where each one uses up its five seconds, one after the other."""

KEPT_MS: Final = 7 * 86_400_000
"""How long what was delivered stays to be looked at. The events themselves stay."""

_OUTAGE_MS: Final = 300_000  # after one as long, what waits is tried at once; below it, each keeps to its table
_ERROR_MAX: Final = 200  # characters that are kept of a failure


@dataclass(frozen=True, slots=True)
class Letter:
    """One delivery that was claimed."""

    number: int
    attempts: int  # this one included
    due_ms: int  # before it was claimed
    event: EventView


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one receiver is to be sent now."""

    webhook_id: str
    name: str
    url: str
    secrets: tuple[str, ...]
    letters: tuple[Letter, ...]  # in the order of the stream; what concerns one subject is sent in that order


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a letter."""

    letter: Letter
    error: str | None  # None where the receiver took it
    is_sent: bool = True  # False where an earlier one about the same subject failed, so that it has to wait
    is_gone: bool = False  # the receiver says that it wants nothing ever again


# Built once: it runs whenever events were numbered.
_DUE: Final = (
    select(WEBHOOK.c.id)
    .where(WEBHOOK.c.enabled)
    .where(
        exists().where(
            DELIVERY.c.webhook_id == WEBHOOK.c.id,
            DELIVERY.c.state == WAITING,
            DELIVERY.c.next_ms <= bindparam("now_ms", type_=BigInteger),
        )
    )
    .order_by(WEBHOOK.c.id)
)


def due(connection: Connection, at: Moment) -> list[str]:
    """Return the receivers for which something is due."""
    return list(connection.execute(_DUE, {"now_ms": at.ms}).scalars())


def claim(connection: Connection, at: Moment, webhook_id: str) -> Claimed | None:
    """Claim what is due for a receiver, at most `BATCH`; only one while it fails, to see whether it is back.

    A subject of which anything is claimed or waits for its next attempt is left out: its events arrive in order.
    """
    row = outbox.locked(connection, webhook_id)
    if row is None or not row["enabled"]:
        return None
    waiting = (DELIVERY.c.webhook_id == webhook_id) & (DELIVERY.c.state == WAITING)
    on_event = EVENT.c.seq == DELIVERY.c.seq
    busy = select(EVENT.c.subject).join(DELIVERY, on_event).where(waiting, DELIVERY.c.next_ms > at.ms)
    columns = (DELIVERY.c.number.label("delivery"), DELIVERY.c.attempts, DELIVERY.c.next_ms)
    found = connection.execute(
        select(*columns, EVENT)
        .join(EVENT, on_event)
        .where(waiting, DELIVERY.c.next_ms <= at.ms, EVENT.c.subject.not_in(busy))
        .order_by(DELIVERY.c.seq)
        .limit(BATCH if row["failing_since_ms"] is None else 1)
    )
    letters = tuple(
        Letter(one["delivery"], one["attempts"] + 1, one["next_ms"], event_view(one)) for one in found.mappings()
    )
    if not letters:
        return None
    mine = update(DELIVERY).where(DELIVERY.c.number.in_([letter.number for letter in letters]))
    connection.execute(mine.values(attempts=DELIVERY.c.attempts + 1, next_ms=at.ms + CLAIM_MS))
    return Claimed(webhook_id, row["name"], row["url"], outbox.secrets(row), letters)


def settle(connection: Connection, at: Moment, webhook_id: str, outcomes: Sequence[Outcome]) -> bool:
    """Write what became of claimed letters; return whether that was an event.

    A letter that somebody else has claimed since, or replayed, is theirs.
    """
    row = outbox.locked(connection, webhook_id)
    if row is None:
        return False
    dead = [outcome for outcome in outcomes if _settled(connection, at, outcome) == DEAD]
    for outcome in dead:
        event = outcome.letter.event
        fact = Fact("webhook.dead_letter", {"seq": event.seq, "type": event.type, "error": outcome.error})
        _record(connection, at, webhook_id, fact)
    is_gone = row["enabled"] and any(outcome.is_gone for outcome in outcomes)
    if is_gone:
        fact = Fact("webhook.disabled", {"name": row["name"], "reason": "the receiver answered 410 Gone"})
        _record(connection, at, webhook_id, fact, enabled=False)
    _keep_failing_since(connection, at, webhook_id, row["failing_since_ms"], outcomes)
    return bool(dead) or is_gone


def _settled(connection: Connection, at: Moment, outcome: Outcome) -> str:
    """Write one outcome; return the state that the delivery is in now."""
    letter = outcome.letter
    columns: dict[str, object] = {"state": WAITING}
    if not outcome.is_sent:
        columns |= {"attempts": letter.attempts - 1, "next_ms": letter.due_ms}
    elif outcome.error is None:
        columns |= {"state": DELIVERED, "done_ms": at.ms, "error": None}
    else:
        next_ms = retry_at_ms(letter.attempts, at.ms, at.chance.randint(0, JITTER_PERMILLE))
        columns["error"] = outcome.error[:_ERROR_MAX]
        columns |= {"state": DEAD, "done_ms": at.ms} if next_ms is None else {"next_ms": next_ms}
    mine = (DELIVERY.c.number == letter.number) & (DELIVERY.c.state == WAITING)
    still_mine = mine & (DELIVERY.c.attempts == letter.attempts)
    written = connection.execute(update(DELIVERY).where(still_mine).values(**columns))
    return str(columns["state"]) if written.rowcount else WAITING


def _keep_failing_since(
    connection: Connection, at: Moment, webhook_id: str, since_ms: int | None, outcomes: Sequence[Outcome]
) -> None:
    took_any = any(outcome.is_sent and outcome.error is None for outcome in outcomes)
    if took_any == (since_ms is None):
        return
    failing = None if took_any else at.ms
    connection.execute(update(WEBHOOK).where(WEBHOOK.c.id == webhook_id).values(failing_since_ms=failing))
    if since_ms is not None and at.ms - since_ms >= _OUTAGE_MS:
        # It is back: nothing need wait for its turn. What another coordinator may be sending right now is left alone.
        outbox.hasten(connection, webhook_id, at.ms, later_than_ms=at.ms + CLAIM_MS)


def prune(connection: Connection, at: Moment) -> None:
    """Forget what was delivered long ago. What is dead stays until somebody replays or removes it."""
    # By `next_ms`, which has an index: it is the end of the claim under which the event was delivered.
    old = (DELIVERY.c.state == DELIVERED) & (DELIVERY.c.next_ms < at.ms - KEPT_MS)
    connection.execute(delete(DELIVERY).where(old))


def _record(connection: Connection, at: Moment, webhook_id: str, fact: Fact, **columns: object) -> None:
    version = outbox.changed(connection, webhook_id, **columns)
    commit.emit(connection, at, fact, subject=webhook_id, version=version, pool_id=None)
