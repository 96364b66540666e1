"""A node leaves for good: nothing is booked on it, nobody reports for it, and its name is free again."""

from typing import Final

from sqlalchemy import Connection, RowMapping, delete, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.service.nodes.operate import fence, locked_node
from muster_coordinator.store import commit, maintenance, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import HELD_BY_NODE
from muster_coordinator.store.tables import ALLOCATION, ATOM, HOLD
from muster_shared.errors import Code, Problem

_SHOWN: Final = 3  # reservations that a refusal names


def remove_node(
    connection: Connection, at: Moment, name: str, reason: str | None, *, force: bool = False
) -> tuple[str, ...]:
    """Take a node out of its pool. What happened on it stays on record, under its id.

    Args:
        connection: In a transaction.
        at: Now.
        name: Or id of the node.
        reason: Kept with the event.
        force: The machine is gone for good, with whatever is booked, bound or declared on it: nobody waits for it, and
            its bookings are repaired whatever the horizon.

    Returns:
        Reservations that somebody must look at now.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` while its agent reports, or without `force` while anything is booked or held
            there, maintenance included.
    """
    row = locked_node(connection, name)
    pool_row = read.known_pool(connection, row["pool_id"])
    if read.silent_since(row["last_report_ms"], pool_row, at.ms) is None:
        raise Problem(Code.CONFLICT, f"{row['name']!r} is reporting: stop its agent first, or it would only join again")
    if not force:
        _refuse_if_used(connection, row)
    touched = fence(connection, at, row["id"], reason) if force else ()
    maintenance.forget_node(connection, row["id"])
    connection.execute(update(ATOM).where(ATOM.c.node_id == row["id"]).values(listed=False))
    connection.execute(delete(HOLD).where(HOLD.c.node_id == row["id"]))
    fact = Fact("node.removed", {"name": row["name"], "reason": reason, "reservations": list(touched)})
    freed = f"removed/{row['id']}"  # no name, machine or credential reads like this
    columns = {"name": freed, "machine_id": freed, "token_hash": freed, "removed_ms": at.ms, "silent": True}
    commit.record_node(connection, at, row["id"], row["pool_id"], fact, **columns)
    commit.pool_changed(connection, row["pool_id"], [row["id"]])
    return touched


def _refuse_if_used(connection: Connection, row: RowMapping) -> None:
    mine = ALLOCATION.c.node_id == row["id"]
    booked = select(ALLOCATION.c.reservation_id).where(
        mine, ALLOCATION.c.live | ALLOCATION.c.bind_state.in_(HELD_BY_NODE)
    )
    holders = sorted(set(connection.execute(booked).scalars()))
    if holders:
        shown = ", ".join(holders[:_SHOWN]) + (" and others" if len(holders) > _SHOWN else "")
        raise Problem(
            Code.CONFLICT,
            f"{row['name']!r} still has {shown}: drain it and let them move or end; if the machine is gone for good, "
            f"`muster nodes remove --force {row['name']}` gives up what it has",
        )
    if row["id"] in (upkeep := maintenance.declared(connection, [row["id"]])):
        raise Problem(
            Code.CONFLICT,
            f"{row['name']!r} is in maintenance {upkeep[row['id']][0].id}: `muster maintenance cancel`, or `end` once "
            "it has begun, gives the node back first",
        )
