"""IMEX channels: one for each gang in each fabric that it touches."""

from collections.abc import Collection

from sqlalchemy import Connection, select, update

from muster_coordinator.store.documents import as_agreed
from muster_coordinator.store.read import HELD_BY_NODE
from muster_coordinator.store.tables import ALLOCATION, CLUSTER
from muster_shared.wire import FABRIC_DOMAIN


def give_channels(connection: Connection, channels: int, allocation_ids: Collection[str]) -> None:
    """Give each gang one channel in each fabric that it touches: the lowest that nobody there may still reach.

    Where all are taken the member gets none, and shares no memory with other nodes. Channel numbers are of the whole
    fabric, whatever the pool. Source: facts on the agent, section 4.1, "IMEX".
    """
    connection.execute(select(CLUSTER.c.id).with_for_update()).all()  # two pools may share a fabric
    held = ALLOCATION.c.bind_state.in_(HELD_BY_NODE) & ALLOCATION.c.imex_channel.is_not(None)
    columns = (ALLOCATION.c.id, ALLOCATION.c.reservation_id, ALLOCATION.c.agreed, ALLOCATION.c.imex_channel)
    taken: dict[str, dict[int, str]] = {}
    for row in connection.execute(select(*columns).where(held)):
        taken.setdefault(_fabric_of(row.agreed) or "", {})[row.imex_channel] = row.reservation_id
    wanted = select(*columns).where(ALLOCATION.c.id.in_(allocation_ids)).order_by(ALLOCATION.c.id)
    for row in connection.execute(wanted).all():
        fabric = _fabric_of(row.agreed)
        if fabric is None:
            continue
        here = taken.setdefault(fabric, {})
        free = (
            number for number in range(1, channels + 1) if here.get(number, row.reservation_id) == row.reservation_id
        )
        own = (number for number, holder in here.items() if holder == row.reservation_id)
        channel = next(own, None) or next(free, None)
        if channel is not None:
            here[channel] = row.reservation_id
            connection.execute(update(ALLOCATION).where(ALLOCATION.c.id == row.id).values(imex_channel=channel))


def _fabric_of(agreed: str) -> str | None:
    return dict(as_agreed(agreed)).get(FABRIC_DOMAIN)
