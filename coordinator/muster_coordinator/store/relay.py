"""The relay: committed events get their places in the stream, and are queued for receivers."""

from typing import Final

from sqlalchemy import BigInteger, Connection, bindparam, select, update

from muster_coordinator.store.outbox import Numbered, queue
from muster_coordinator.store.tables import CLUSTER, EVENT

# Built once: they run after every change.
_LOCK: Final = select(CLUSTER.c.id).with_for_update()
_WAITING: Final = (
    select(EVENT.c.number, EVENT.c.type, EVENT.c.subject, EVENT.c.at_ms)
    .where(EVENT.c.seq.is_(None))
    .order_by(EVENT.c.number)
    .limit(bindparam("batch", type_=BigInteger))
)
_LAST: Final = select(EVENT.c.seq).where(EVENT.c.seq.is_not(None)).order_by(EVENT.c.seq.desc()).limit(1)
_NUMBERED: Final = (
    update(EVENT)
    .where(EVENT.c.number == bindparam("of_event", type_=BigInteger))
    .values(seq=bindparam("place", type_=BigInteger))
)


def publish(connection: Connection, batch: int) -> int:
    """Give the next sequence numbers to committed events that have none, and queue them for receivers; return how many.

    Rows are marked, never walked by id: they may commit out of the order of their numbers. The cluster's row is the
    relays' lock, so that replicas take turns.
    """
    connection.execute(_LOCK).all()
    rows = connection.execute(_WAITING, {"batch": batch}).all()
    if not rows:
        return 0
    seq = connection.execute(_LAST).scalar() or 0
    places = [{"of_event": row.number, "place": place} for place, row in enumerate(rows, seq + 1)]
    connection.execute(_NUMBERED, places)
    queue(connection, [Numbered(place, row.type, row.subject, row.at_ms) for place, row in enumerate(rows, seq + 1)])
    return len(rows)
