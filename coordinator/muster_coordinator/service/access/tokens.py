"""Bearer tokens of people and programs: made, looked up, revoked. Only their hashes are kept."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, RowMapping, insert, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.service.access.bodies import TokenRequest, TokenView
from muster_coordinator.service.access.book import access_changed
from muster_coordinator.service.access.caller import Caller
from muster_coordinator.service.nodes.join import hashed
from muster_coordinator.service.when import length
from muster_coordinator.store import commit
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.ledger_tables import TOKEN
from muster_shared.codec import dumps, loads
from muster_shared.errors import Code, Problem, invalid

PREFIX: Final = "muster_"
"""By which a token that has leaked is known as ours."""

_LONGEST_MS: Final = 3_650 * 86_400_000  # ten years: whoever wants longer wants a token that nobody looks after
_USED_APART_MS: Final = (
    600_000  # how exactly the last use is known; a write for each call would cost more than it tells
)

_OPERATOR: Final = "operator"


def create(
    connection: Connection, at: Moment, asked: TokenRequest, secret: str, created_by: str, *, has_root: bool
) -> TokenView:
    """Make a token.

    Args:
        connection: In a transaction.
        at: Now.
        asked: As it was asked for.
        secret: What its bearer shows: with `PREFIX`, 256 bits that nobody can guess.
        created_by: Who makes it.
        has_root: The coordinator's configuration has a token for operators, so nobody can lock themselves out.

    Raises:
        Problem: `INVALID_INPUT` for roles that do not go together, or a length that cannot be; `CONFLICT` for a name
            that a live token has, and where the first token is no operator's.
    """
    roles = sorted(set(asked.roles))
    _check_roles(roles, asked.tenant_id)
    lasts_ms = length("duration", asked.duration)
    if lasts_ms > _LONGEST_MS:
        raise invalid("duration", "at most 3650d")
    live = _live(connection, at)
    if any(row["name"] == asked.name for row in live):
        raise Problem(Code.CONFLICT, f"there is a token {asked.name!r} already; `muster tokens` lists them")
    if not has_root and _OPERATOR not in roles and not _operators(live):
        raise Problem(
            Code.CONFLICT,
            "from the first token on everybody must show one, and no operator would have any: make one with the role "
            "operator first, or set api_token in the coordinator's configuration",
        )
    token_id = at.new_id("tok")
    connection.execute(
        insert(TOKEN).values(
            id=token_id,
            name=asked.name,
            hash=hashed(secret),
            roles=dumps(roles).decode(),
            tenant_id=asked.tenant_id,
            created_ms=at.ms,
            expires_ms=at.ms + lasts_ms,
            created_by=created_by,
        )
    )
    access_changed(connection)
    data = {"name": asked.name, "roles": roles, "tenantId": asked.tenant_id, "expires": at.ms + lasts_ms}
    commit.emit(connection, at, Fact("token.created", data), subject=token_id, version=1, pool_id=None)
    return _view(_row(connection, token_id), at.ms)


def revoke(connection: Connection, at: Moment, name: str, reason: str | None, *, has_root: bool) -> TokenView:
    """End a token at once, by id or by name. Revoking again changes nothing.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` for the last one of an operator where the configuration has no token either.
    """
    row = _row(connection, name)
    if row["revoked_ms"] is not None:
        return _view(row, at.ms)
    others = [one for one in _live(connection, at) if one["id"] != row["id"]]
    if not has_root and _OPERATOR in loads(row["roles"]) and not _operators(others):
        raise Problem(
            Code.CONFLICT,
            f"{row['name']!r} is the last token of an operator: make another one first, or set api_token in the "
            "coordinator's configuration",
        )
    connection.execute(update(TOKEN).where(TOKEN.c.id == row["id"]).values(revoked_ms=at.ms))
    fact = Fact("token.revoked", {"name": row["name"], "reason": reason})
    commit.emit(connection, at, fact, subject=row["id"], version=2, pool_id=None)
    return _view(_row(connection, row["id"]), at.ms)


def listed(connection: Connection, at: Moment, *, everything: bool) -> list[TokenView]:
    """List tokens by name; without `everything` only those that are good for something."""
    rows = connection.execute(select(TOKEN).order_by(TOKEN.c.name, TOKEN.c.created_ms)).mappings()
    views = [_view(row, at.ms) for row in rows]
    return [view for view in views if everything or view.state == "live"]


def caller_of(connection: Connection, token: str, now_ms: int) -> tuple[Caller, bool] | None:
    """Return whose token this is, and whether its use is worth noting; None where it is nobody's, or over.

    Found by its hash, so that timing tells nothing of the token.
    """
    row = connection.execute(select(TOKEN).where(TOKEN.c.hash == hashed(token))).mappings().first()
    if row is None or row["revoked_ms"] is not None or row["expires_ms"] <= now_ms:
        return None
    caller = Caller("User", row["id"], row["name"], tuple(loads(row["roles"])), row["tenant_id"])
    return caller, now_ms - (row["last_used_ms"] or 0) >= _USED_APART_MS


def used(connection: Connection, token_id: str, now_ms: int) -> None:
    """Note that a token was used."""
    connection.execute(update(TOKEN).where(TOKEN.c.id == token_id).values(last_used_ms=now_ms))


def _check_roles(roles: Sequence[str], tenant_id: str | None) -> None:
    if "tenant" in roles and tenant_id is None:
        raise invalid("tenantId", "the role tenant is confined to one: say which")
    wide = [role for role in roles if role not in {"tenant", "read-only"}]
    if wide and tenant_id is not None:
        raise invalid("tenantId", f"the role {wide[0]} is confined to no tenant: leave it out, or make two tokens")


def _operators(rows: list[RowMapping]) -> list[RowMapping]:
    return [row for row in rows if _OPERATOR in loads(row["roles"])]


def _live(connection: Connection, at: Moment) -> list[RowMapping]:
    wanted = select(TOKEN).where(TOKEN.c.revoked_ms.is_(None), TOKEN.c.expires_ms > at.ms)
    return list(connection.execute(wanted.order_by(TOKEN.c.id).with_for_update()).mappings())


def _row(connection: Connection, name: str) -> RowMapping:
    # A name may be used again once its token is over: the newest is meant.
    wanted = select(TOKEN).where((TOKEN.c.id == name) | (TOKEN.c.name == name)).order_by(TOKEN.c.id.desc())
    row = connection.execute(wanted).mappings().first()
    if row is None:
        raise Problem(Code.NOT_FOUND, f"there is no token {name!r}; `muster tokens --all` lists them")
    return row


def _view(row: RowMapping, now_ms: int) -> TokenView:
    return TokenView(
        id=row["id"],
        name=row["name"],
        roles=loads(row["roles"]),
        tenant_id=row["tenant_id"],
        state="revoked" if row["revoked_ms"] is not None else "expired" if row["expires_ms"] <= now_ms else "live",
        created=row["created_ms"],
        expires=row["expires_ms"],
        revoked=row["revoked_ms"],
        last_used=row["last_used_ms"],
        created_by=row["created_by"],
    )
