"""Join tokens: each lets one host, of a name that an operator chose, join one pool, once."""

from typing import Final, Literal

from sqlalchemy import Connection, RowMapping, insert, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.service.admit import DEFAULT_POOL
from muster_coordinator.service.draft import pool_missing
from muster_coordinator.service.nodes.join import hashed, register
from muster_coordinator.service.nodes.join_bodies import JoinTokenRequest, JoinTokenView
from muster_coordinator.service.when import length
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.ledger_tables import JOIN_TOKEN
from muster_coordinator.store.tables import NODE, POOL
from muster_shared.errors import Code, Problem, invalid
from muster_shared.wire import Credential, Registration

PREFIX: Final = "muster_join_"
"""By which a token that has leaked is known for what it is."""

_LONGEST_MS: Final = 30 * 86_400_000  # it lies in images and tickets: a month is long
_AGAIN_MS: Final = 600_000  # a host whose answer was lost on the way asks again, and is let in again


def create(connection: Connection, at: Moment, asked: JoinTokenRequest, secret: str) -> JoinTokenView:
    """Make a join token; one for the same host that is still open ends.

    Raises:
        Problem: `NOT_FOUND` for the pool; `INVALID_INPUT` for a length that cannot be.
    """
    pool_row = read.pool(connection, asked.pool_id or DEFAULT_POOL, lock=True)
    if pool_row is None:
        raise pool_missing(asked.pool_id or DEFAULT_POOL)
    lasts_ms = length("duration", asked.duration)
    if lasts_ms > _LONGEST_MS:
        raise invalid("duration", "at most 30d")
    same = JOIN_TOKEN.c.node_name == asked.node_name, JOIN_TOKEN.c.pool_id == pool_row.id
    is_open = JOIN_TOKEN.c.used_ms.is_(None), JOIN_TOKEN.c.revoked_ms.is_(None)
    connection.execute(update(JOIN_TOKEN).where(*same, *is_open).values(revoked_ms=at.ms))
    token_id = at.new_id("join")
    connection.execute(
        insert(JOIN_TOKEN).values(
            id=token_id,
            hash=hashed(secret),
            node_name=asked.node_name,
            pool_id=pool_row.id,
            created_ms=at.ms,
            expires_ms=at.ms + lasts_ms,
        )
    )
    data = {"nodeName": asked.node_name, "expires": at.ms + lasts_ms}
    commit.emit(connection, at, Fact("join.allowed", data), subject=token_id, version=1, pool_id=pool_row.id)
    return _shown(connection, at, token_id)


def listed(connection: Connection, at: Moment, *, everything: bool) -> list[JoinTokenView]:
    """List join tokens, oldest first; without `everything` only those that still let a host in."""
    rows = connection.execute(_WITH_POOL.order_by(JOIN_TOKEN.c.id)).mappings()
    views = [_view(row, at.ms) for row in rows]
    return [view for view in views if everything or view.state == "open"]


def revoke(connection: Connection, at: Moment, token_id: str, reason: str | None) -> JoinTokenView:
    """End a join token that nobody has used. Revoking again changes nothing.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` once a host has joined by it.
    """
    view = _shown(connection, at, token_id)
    if view.state == "used":
        advice = f"`muster nodes remove {view.node_name}` takes the node out"
        raise Problem(Code.CONFLICT, f"{view.node_name!r} has joined by it already: {advice}")
    if view.state == "revoked":
        return view
    connection.execute(update(JOIN_TOKEN).where(JOIN_TOKEN.c.id == token_id).values(revoked_ms=at.ms))
    fact = Fact("join.revoked", {"nodeName": view.node_name, "reason": reason})
    commit.emit(connection, at, fact, subject=token_id, version=2, pool_id=None)
    return _shown(connection, at, token_id)


def join_by(connection: Connection, at: Moment, registration: Registration, shown: str, credential: str) -> Credential:
    """Let a host join by the token that it shows, which is used up in the same transaction.

    Args:
        connection: In a transaction.
        at: Now.
        registration: What the host says of itself.
        shown: The join token.
        credential: A fresh secret; only its hash is stored.

    Raises:
        Problem: `UNAUTHENTICATED` where the token lets nobody in, or not this host; else as `register`.
    """
    # Locked: of two hosts that show it at once, the second sees that it is used.
    wanted = select(JOIN_TOKEN).where(JOIN_TOKEN.c.hash == hashed(shown)).with_for_update()
    row = connection.execute(wanted).mappings().first()
    if row is None:
        raise Problem(Code.UNAUTHENTICATED, "this join token is not known: make one with `muster join-tokens create`")
    if fault := _fault(connection, row, registration, at.ms):
        raise Problem(Code.UNAUTHENTICATED, f"{fault}: make another one with `muster join-tokens create`")
    joined = register(connection, at, registration.model_copy(update={"pool": row["pool_id"]}), credential)
    if row["used_ms"] is None:
        connection.execute(update(JOIN_TOKEN).where(JOIN_TOKEN.c.id == row["id"]).values(used_ms=at.ms))
        fact = Fact("join.used", {"nodeName": row["node_name"], "nodeId": joined.node_id})
        commit.emit(connection, at, fact, subject=row["id"], version=2, pool_id=row["pool_id"])
    return joined


def _fault(connection: Connection, row: RowMapping, registration: Registration, now_ms: int) -> str | None:
    """Return why a token does not let this host in, or None."""
    if row["revoked_ms"] is not None:
        return "this join token was revoked"
    if row["expires_ms"] <= now_ms:
        return "this join token has expired"
    if row["node_name"] != registration.name:
        return f"this join token is for another host than {registration.name!r}"
    if row["used_ms"] is not None:
        mine = NODE.c.name == registration.name, NODE.c.removed_ms.is_(None)
        machine_id = connection.execute(select(NODE.c.machine_id).where(*mine)).scalar()
        if machine_id != registration.machine_id or now_ms - row["used_ms"] > _AGAIN_MS:
            return "this join token was used before"
    return None


_WITH_POOL: Final = select(JOIN_TOKEN, POOL.c.name.label("pool_name")).join(POOL, POOL.c.id == JOIN_TOKEN.c.pool_id)


def _shown(connection: Connection, at: Moment, token_id: str) -> JoinTokenView:
    row = connection.execute(_WITH_POOL.where(JOIN_TOKEN.c.id == token_id)).mappings().first()
    if row is None:
        detail = f"there is no join token {token_id!r}; `muster join-tokens --all` lists them"
        raise Problem(Code.NOT_FOUND, detail)
    return _view(row, at.ms)


def _view(row: RowMapping, now_ms: int) -> JoinTokenView:
    return JoinTokenView(
        id=row["id"],
        node_name=row["node_name"],
        pool_id=row["pool_id"],
        pool_name=row["pool_name"],
        state=_state(row, now_ms),
        created=row["created_ms"],
        expires=row["expires_ms"],
        used=row["used_ms"],
    )


def _state(row: RowMapping, now_ms: int) -> Literal["open", "used", "expired", "revoked"]:
    if row["used_ms"] is not None:
        return "used"
    if row["revoked_ms"] is not None:
        return "revoked"
    return "open" if row["expires_ms"] > now_ms else "expired"
