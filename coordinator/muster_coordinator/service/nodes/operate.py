"""What operators do: pools, intent, labels, and attesting that a node holds nothing."""

from collections.abc import Mapping

from sqlalchemy import Connection, RowMapping, insert, or_, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState, Intent, policy_faults
from muster_coordinator.service.accounts import metering
from muster_coordinator.service.nodes.report import look_again
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import HELD_BY_NODE
from muster_coordinator.store.tables import ALLOCATION, CLUSTER, HOLD, NODE, POOL
from muster_shared.codec import dumps, loads
from muster_shared.errors import Code, Problem, invalid

_RESERVED = ("fabric.", "gpu.", "driver.")


def prepare(connection: Connection, at: Moment, default_pool: str, policy: Mapping[str, int] | None = None) -> None:
    """Give an empty database its cluster id and its first pool; change nothing in another.

    Raises:
        Problem: `INVALID_INPUT` for a policy with an unknown value, or one out of range.
    """
    if connection.execute(select(CLUSTER.c.id)).first() is None:
        connection.execute(insert(CLUSTER).values(id=at.new_id("cluster"), created_ms=at.ms))
    if connection.execute(select(POOL.c.id)).first() is None:
        create_pool(connection, at, default_pool, policy)


def create_pool(connection: Connection, at: Moment, name: str, policy: Mapping[str, int] | None = None) -> str:
    """Make a pool; return its id. What `policy` does not name has its default.

    Raises:
        Problem: `CONFLICT` when the name is taken; `INVALID_INPUT` for an unknown value, or one out of range.
    """
    chosen = dict(policy or {})
    for key, fault in policy_faults(chosen).items():
        raise invalid(f"policy.{key}", fault)
    if read.pool(connection, name) is not None:
        raise Problem(Code.CONFLICT, f"there is a pool {name!r} already")
    pool_id = at.new_id("pool")
    connection.execute(
        insert(POOL).values(id=pool_id, name=name, policy=dumps(chosen).decode(), version=0, created_ms=at.ms)
    )
    commit.emit(connection, at, Fact("pool.created", {"name": name}), subject=pool_id, version=1, pool_id=pool_id)
    return pool_id


def set_intent(connection: Connection, at: Moment, name: str, intent: Intent, reason: str | None) -> tuple[str, ...]:
    """Open, cordon or drain a node; return the reservations that somebody must look at now.

    Raises:
        Problem: `NOT_FOUND`.
    """
    row = locked_node(connection, name)
    if row["intent"] == intent:
        return ()
    fact = Fact(f"node.{intent}", {"reason": reason})
    commit.record_node(connection, at, row["id"], row["pool_id"], fact, intent=intent, drained_ms=None)
    commit.pool_changed(connection, row["pool_id"], [row["id"]])
    return read.soonest_first(connection, look_again(connection, at, [row["id"]]))


def set_labels(connection: Connection, at: Moment, name: str, labels: Mapping[str, str | None]) -> tuple[str, ...]:
    """Set operator labels, remove those given as None; return the reservations that somebody must look at now.

    Raises:
        Problem: `NOT_FOUND`; `INVALID_INPUT` for a label that the agent measures.
    """
    row = locked_node(connection, name)
    for key in labels:
        if key.startswith(_RESERVED):
            raise invalid(
                f"labels.{key}",
                "measured by the agent, not set by people; choose a name outside "
                + ", ".join(f"{prefix}*" for prefix in _RESERVED),
            )
    before = loads(row["operator_labels"])
    after = {key: value for key, value in {**before, **labels}.items() if value is not None}
    if after == before:
        return ()
    fact = Fact("node.labelled", {"labels": after, "former": before})
    written = dumps(after).decode()
    commit.record_node(connection, at, row["id"], row["pool_id"], fact, operator_labels=written)
    commit.pool_changed(connection, row["pool_id"], [row["id"]])
    return read.soonest_first(connection, look_again(connection, at, [row["id"]]))


def clear_holds(
    connection: Connection, at: Moment, name: str, device: str | None, cause: str | None, reason: str | None = None
) -> None:
    """Tell a node that holds of it are over, by an operator's word; without device and cause, all of them.

    The agent owns its holds: each ends when it has obeyed. What a reading still shows comes back.

    Raises:
        Problem: `NOT_FOUND` for the node, or when it has no such hold.
    """
    row = locked_node(connection, name)
    chosen = [HOLD.c.node_id == row["id"]]
    if device is not None:
        chosen.append(HOLD.c.device == device)
    if cause is not None:
        chosen.append(HOLD.c.cause == cause)
    asked = update(HOLD).where(*chosen).values(clear_asked_ms=at.ms)
    if not connection.execute(asked).rowcount:
        raise Problem(Code.NOT_FOUND, f"{row['name']!r} has no such hold; `muster nodes get {row['name']}` lists them")
    commit.raise_revs(connection, [row["id"]])
    fact = Fact("node.hold_clear_asked", {"device": device, "cause": cause, "reason": reason})
    commit.record_node(connection, at, row["id"], row["pool_id"], fact)


def fence(connection: Connection, at: Moment, name: str, reason: str | None) -> tuple[str, ...]:
    """Attest that a silent node holds nothing any more: what waited for its confirmation is free.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` while the node reports: it speaks for itself.
    """
    row = locked_node(connection, name)
    pool_row = read.pool(connection, row["pool_id"])
    assert pool_row is not None, "a node's pool exists: the foreign key says so"
    if read.silent_since(row["last_report_ms"], pool_row, at.ms) is None:
        raise Problem(
            Code.CONFLICT, f"{row['name']!r} is reporting and will confirm by itself: only a silent node is fenced"
        )
    held = select(ALLOCATION).where(ALLOCATION.c.node_id == row["id"], ALLOCATION.c.bind_state.in_(HELD_BY_NODE))
    allocations = connection.execute(held).mappings().all()
    touched = {str(allocation["reservation_id"]) for allocation in allocations}
    for allocation in allocations:
        gone = BindState.FENCED if allocation["bind_state"] == BindState.UNBINDING else BindState.LOST
        attested = update(ALLOCATION).where(ALLOCATION.c.id == allocation["id"])
        connection.execute(attested.values(bind_state=gone, bind_reason="fenced"))
    metering.close(connection, at, [allocation["id"] for allocation in allocations])
    fact = Fact("node.fenced", {"reason": reason, "reservations": sorted(touched)})
    commit.raise_revs(connection, [row["id"]])
    commit.record_node(connection, at, row["id"], row["pool_id"], fact)
    commit.pool_changed(connection, row["pool_id"], [row["id"]])
    return read.soonest_first(connection, touched | look_again(connection, at, [row["id"]]))


def locked_node(connection: Connection, name: str) -> RowMapping:
    """Lock a node's pool, then the node; return its row.

    Raises:
        Problem: `NOT_FOUND`.
    """
    wanted = select(NODE).where(or_(NODE.c.id == name, NODE.c.name == name), NODE.c.removed_ms.is_(None))
    row = connection.execute(wanted).mappings().first()
    if row is None:
        raise Problem(Code.NOT_FOUND, f"there is no node {name!r}; `muster nodes` lists them")
    read.pool(connection, row["pool_id"], lock=True)
    return connection.execute(wanted.with_for_update()).mappings().one()
