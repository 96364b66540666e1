"""Nodes join: one record and one credential for each host, and a clear refusal for its clone."""

import hashlib
import hmac

from sqlalchemy import Connection, RowMapping, insert, or_, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.service.admit import DEFAULT_POOL
from muster_coordinator.service.draft import pool_missing
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.tables import ATOM, CLUSTER, NODE
from muster_shared.errors import Code, Problem
from muster_shared.wire import Credential, Registration


def register(connection: Connection, at: Moment, registration: Registration, token: str) -> Credential:
    """Make a node's record, or give a host that lost its credential a new one. The former credential ends.

    Args:
        connection: In a transaction.
        at: Now.
        registration: What the host says of itself.
        token: A fresh secret; only its hash is stored.

    Raises:
        Problem: `NOT_FOUND` for the pool; `CONFLICT` when the name or the machine id belongs to another host.
    """
    pool_row = read.pool(connection, registration.pool or DEFAULT_POOL, lock=True)
    if pool_row is None:
        raise pool_missing(registration.pool or DEFAULT_POOL)
    known = or_(NODE.c.name == registration.name, NODE.c.machine_id == registration.machine_id)
    rows = connection.execute(select(NODE).where(known)).mappings().all()
    for row in rows:
        is_live = read.silent_since(row["last_report_ms"], pool_row, at.ms) is None
        _refuse_another_host(connection, row, registration, is_live=is_live)
    if rows:
        node_id = rows[0]["id"]
        connection.execute(update(NODE).where(NODE.c.id == node_id).values(token_hash=hashed(token)))
    else:
        node_id = at.new_id("node")
        connection.execute(
            insert(NODE).values(
                id=node_id,
                pool_id=pool_row.id,
                name=registration.name,
                machine_id=registration.machine_id,
                token_hash=hashed(token),
                agent_version=registration.agent_version,
                intent="schedulable",
                leased=False,
                silent=False,
                operator_labels="{}",
                past_boots="[]",
                seq=0,
                applied_rev=0,
                rev=1,
                version=0,
                fault_ms=0,
                slots="{}",
                created_ms=at.ms,
            )
        )
        commit.record_node(connection, at, node_id, pool_row.id, Fact("node.joined", {"name": registration.name}))
        commit.pool_changed(connection, pool_row.id, [node_id])
    return Credential(
        cluster_id=cluster_id(connection),
        node_id=node_id,
        token=token,
        heartbeat_ms=pool_row.policy.heartbeat_ms,
    )


def node_of_token(connection: Connection, token: str) -> str | None:
    """Return the node that a credential belongs to. Found by its hash, so that timing tells nothing of the token."""
    return connection.execute(select(NODE.c.id).where(NODE.c.token_hash == hashed(token))).scalar()


def hashed(token: str) -> str:
    """Return what is stored of a secret: 256 bits of chance need no slow hash."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_same_secret(given: str, wanted: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode(), wanted.encode())


def cluster_id(connection: Connection) -> str:
    """Return who this coordinator is."""
    return str(connection.execute(select(CLUSTER.c.id)).scalar_one())


def is_writable(connection: Connection) -> None:
    """Write the cluster's row as it is: it fails where nothing can be stored.

    Raises:
        DBAPIError: The disk is full, the database read-only or away.
    """
    connection.execute(update(CLUSTER).values(created_ms=CLUSTER.c.created_ms))


def _refuse_another_host(connection: Connection, row: RowMapping, registration: Registration, *, is_live: bool) -> None:
    if row["machine_id"] != registration.machine_id:
        raise Problem(
            Code.CONFLICT,
            f"the name {registration.name!r} belongs to another machine: choose another `name`, "
            "or remove the former node first",
        )
    if row["name"] != registration.name:
        raise Problem(
            Code.CONFLICT,
            f"this machine id is already registered as {row['name']!r}: if this host was cloned from it, give it a "
            "machine id of its own (systemd-machine-id-setup)",
        )
    known = set(connection.execute(select(ATOM.c.gpu).where(ATOM.c.node_id == row["id"])).scalars())
    shown = set(registration.gpus)
    # A host that shows no GPU may be one whose driver is not up yet; while the known one reports, it is another.
    if known and known.isdisjoint(shown) and (shown or is_live):
        raise Problem(
            Code.CONFLICT,
            f"{row['name']!r} is known with other GPUs: this looks like a clone of that host, or its hardware was "
            "replaced. While the former one reports, it stays as it is",
        )
