"""The outbox: which events are on their way to which receiver, and the changes of receivers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, RowMapping, insert, select, update

from muster_coordinator.core.event_types import is_wanted
from muster_coordinator.store.tables import DELIVERY, WEBHOOK
from muster_shared.codec import loads

WAITING: Final = "waiting"
DELIVERED: Final = "delivered"
DEAD: Final = "dead"

# Shared, so that no receiver is removed while something is queued for it; nobody else is kept waiting.
_RECEIVERS: Final = (
    select(WEBHOOK).where(WEBHOOK.c.enabled).order_by(WEBHOOK.c.id).with_for_update(read=True, key_share=True)
)


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event that has just got its place in the stream."""

    seq: int
    type: str
    subject: str
    at_ms: int


def queue(connection: Connection, events: Sequence[Numbered]) -> None:
    """Write a delivery for each receiver that wants an event, in the transaction that gives the event its number.

    What happens to a receiver is not told to itself: a dead letter would beget the next.
    """
    receivers = connection.execute(_RECEIVERS).mappings().all()
    rows = [
        {"webhook_id": receiver["id"], "seq": event.seq, "state": WAITING, "attempts": 0, "next_ms": event.at_ms}
        for receiver in receivers
        for types in [loads(receiver["types"])]
        for event in events
        if is_wanted(event.type, types) and event.subject != receiver["id"]
    ]
    if rows:
        connection.execute(insert(DELIVERY), rows)


def locked(connection: Connection, id_or_name: str) -> RowMapping | None:
    """Lock a receiver, so that what is sent to it is decided by one at a time; None where there is none."""
    wanted = select(WEBHOOK).where((WEBHOOK.c.id == id_or_name) | (WEBHOOK.c.name == id_or_name))
    return connection.execute(wanted.with_for_update(key_share=True)).mappings().first()


def secrets(row: RowMapping) -> tuple[str, ...]:
    """Return the secrets that sign what a receiver is sent, the newest first."""
    former: str | None = row["former_secret"]
    return (row["secret"],) if former is None else (row["secret"], former)


def changed(connection: Connection, webhook_id: str, **columns: object) -> int:
    """Write a change of a receiver that is an event; return the receiver's new version."""
    raised = update(WEBHOOK).where(WEBHOOK.c.id == webhook_id)
    written = raised.values(version=WEBHOOK.c.version + 1, **columns).returning(WEBHOOK.c.version)
    return int(connection.execute(written).scalar_one())


def hasten(connection: Connection, webhook_id: str, now_ms: int, *, later_than_ms: int) -> None:
    """Make due now what waits for an attempt later than some instant."""
    waiting = (DELIVERY.c.webhook_id == webhook_id) & (DELIVERY.c.state == WAITING)
    connection.execute(update(DELIVERY).where(waiting, DELIVERY.c.next_ms > later_than_ms).values(next_ms=now_ms))
