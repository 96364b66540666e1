"""How many events of each type there have been: read from the event log, so that a restart loses no count."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from sqlalchemy import BigInteger, Connection, bindparam, func, select

from muster_coordinator.store.tables import EVENT

_SINCE: Final = (
    select(EVENT.c.pool_id, EVENT.c.type, func.count(), func.max(EVENT.c.seq))
    .where(EVENT.c.seq > bindparam("seq", type_=BigInteger))
    .group_by(EVENT.c.pool_id, EVENT.c.type)
)


class Tally:
    """Counts by pool and type, caught up at each look: only the first one reads the whole log."""

    def __init__(self) -> None:
        self._seq = 0
        self._counts: Counter[tuple[str | None, str]] = Counter()

    def counted(self, connection: Connection) -> Mapping[tuple[str | None, str], int]:
        """Return how many events there are of each pool (None for none) and type.

        Sequence numbers are committed in their order, so nothing is ever missed below the highest one seen.
        """
        rows = connection.execute(_SINCE, {"seq": self._seq}).all()
        if not rows and self._seq and self._is_restored(connection):
            self._seq, self._counts = 0, Counter()
            rows = connection.execute(_SINCE, {"seq": 0}).all()
        for pool_id, kind, count, seq in rows:
            self._counts[pool_id, kind] += count
            self._seq = max(self._seq, seq)
        return dict(self._counts)

    def _is_restored(self, connection: Connection) -> bool:
        """Tell whether the database is an older copy than the one that was counted."""
        return (connection.execute(select(func.max(EVENT.c.seq))).scalar() or 0) < self._seq
