"""The audit log: one row for each call that changes something or was refused, and the chain that holds them together.

A row is written in the transaction of the change, without a place: pools do not wait for each other. One relay gives
places, and each row the hash of the one before, once they are committed.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Connection, RowMapping, bindparam, func, insert, select, update

from muster_coordinator.service.access.bodies import AuditView, VerifiedView
from muster_coordinator.store.ledger_tables import AUDIT
from muster_coordinator.store.tables import CLUSTER
from muster_shared.codec import dumps, loads

OK: Final = "OK"
"""The outcome of what was not refused."""

FIRST_HASH: Final = "0" * 64
"""What stands before the first row."""

Row = dict[str, Any]

_TEXT_MAX: Final = 256  # characters of what a caller wrote
_BATCH: Final = 500  # rows that are read at once
_HASHED: Final = (
    "seq", "at_ms", "request_id", "actor", "source", "action", "object", "decision", "policies", "outcome", "reason",
    "before", "after", "former_hash",
)  # fmt: skip
_NEW: Final = insert(AUDIT)
# Built once: they run after every change.
_LOCK: Final = select(CLUSTER.c.id).with_for_update()
_ANY_WAITING: Final = select(AUDIT.c.number).where(AUDIT.c.seq.is_(None)).limit(1)
_WAITING: Final = (
    select(AUDIT).where(AUDIT.c.seq.is_(None)).order_by(AUDIT.c.number).limit(bindparam("batch", type_=BigInteger))
)
_LAST: Final = select(AUDIT.c.seq, AUDIT.c.hash).where(AUDIT.c.seq.is_not(None)).order_by(AUDIT.c.seq.desc()).limit(1)
_CHAINED: Final = (
    update(AUDIT)
    .where(AUDIT.c.number == bindparam("of_row", type_=BigInteger))
    .values(seq=bindparam("place"), former_hash=bindparam("former"), hash=bindparam("own"))
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows somebody wants; what is None does not matter."""

    actor: str | None = None
    action: str | None = None  # or a part of it that ends in a colon
    subject: str | None = None
    decision: str | None = None
    since_ms: int | None = None


def row(what: Row, policies: Sequence[str], before: Mapping[str, int], after: Mapping[str, int]) -> Row:
    """Return a row that has no place yet. No body, no secret: what was changed stands in the events.

    Args:
        what: The columns that are plain text, and `at_ms`.
        policies: Names of those that decided.
        before: Versions of what was changed, by its id.
        after: The same, afterwards.
    """
    plain = {key: value[:_TEXT_MAX] if isinstance(value, str) else value for key, value in what.items()}
    return {
        **plain,
        "policies": dumps(list(policies)).decode(),
        "before": dumps(dict(before)).decode() if before else None,
        "after": dumps(dict(after)).decode() if after else None,
    }


def write(connection: Connection, rows: Sequence[Row]) -> None:
    """Write rows that have no place yet."""
    if rows:
        connection.execute(_NEW, list(rows))


def chain(connection: Connection, batch: int) -> int:
    """Give the next places to committed rows that have none; return how many. Replicas take turns."""
    if connection.execute(_ANY_WAITING).first() is None:
        return 0
    connection.execute(_LOCK).all()
    rows = connection.execute(_WAITING, {"batch": batch}).mappings().all()
    last = connection.execute(_LAST).mappings().first()
    seq, former = (0, FIRST_HASH) if last is None else (last["seq"], last["hash"])
    links: list[Row] = []
    for seq, one in enumerate(rows, seq + 1):  # noqa: B020 - it goes on from the last place
        own = _hash({**one, "seq": seq, "former_hash": former})
        links.append({"of_row": one["number"], "place": seq, "former": former, "own": own})
        former = own
    if links:
        connection.execute(_CHAINED, links)
    return len(links)


def listed(connection: Connection, wanted: Wanted, *, after: int, limit: int) -> list[AuditView]:
    """Return the next rows after a place, in the order of the chain."""
    asked = _placed().where(AUDIT.c.seq > after, *_conditions(wanted)).order_by(AUDIT.c.seq).limit(limit)
    return [_view(one) for one in connection.execute(asked).mappings()]


def verify(connection: Connection) -> VerifiedView:
    """Walk the whole chain, and tell where it is broken first, if anywhere."""
    former, seq = FIRST_HASH, 0
    waiting = select(func.count()).select_from(AUDIT).where(AUDIT.c.seq.is_(None))
    pending: int = connection.execute(waiting).scalar_one()
    for one in _all(connection):
        fault = _fault(one, seq + 1, former)
        if fault is not None:
            return VerifiedView(sound=False, rows=seq, pending=pending, head=former, broken_at=seq + 1, fault=fault)
        former, seq = one["hash"], one["seq"]
    return VerifiedView(sound=True, rows=seq, pending=pending, head=former)


def _fault(one: RowMapping, seq: int, former: str) -> str | None:
    if one["seq"] != seq:
        return f"row {seq} is missing: the next one is {one['seq']}"
    if one["former_hash"] != former:
        return f"row {seq} does not follow the one before it"
    if one["hash"] != _hash(one):
        return f"row {seq} is not as it was written"
    return None


def _all(connection: Connection) -> Iterator[RowMapping]:
    seq = 0
    while (
        rows := connection.execute(_placed().where(AUDIT.c.seq > seq).order_by(AUDIT.c.seq).limit(_BATCH))
        .mappings()
        .all()
    ):
        yield from rows
        seq = rows[-1]["seq"]


def _placed() -> Any:  # noqa: ANN401 - a statement, whose type names every column
    return select(AUDIT).where(AUDIT.c.seq.is_not(None))


def _hash(one: Mapping[str, Any] | RowMapping) -> str:
    return hashlib.sha256(dumps([one[name] for name in _HASHED])).hexdigest()


def _conditions(wanted: Wanted) -> Iterable[ColumnElement[bool]]:
    if wanted.actor is not None:
        yield AUDIT.c.actor == wanted.actor
    if wanted.action is not None:
        is_part = wanted.action.endswith(":")
        yield AUDIT.c.action.startswith(wanted.action, autoescape=True) if is_part else AUDIT.c.action == wanted.action
    if wanted.subject is not None:
        yield AUDIT.c.object == wanted.subject
    if wanted.decision is not None:
        yield AUDIT.c.decision == wanted.decision
    if wanted.since_ms is not None:
        yield AUDIT.c.at_ms >= wanted.since_ms


def _view(one: RowMapping) -> AuditView:
    return AuditView(
        seq=one["seq"],
        at=one["at_ms"],
        request_id=one["request_id"],
        actor=one["actor"],
        source=one["source"],
        action=one["action"],
        object=one["object"],
        decision=one["decision"],
        policies=loads(one["policies"]),
        outcome=one["outcome"],
        reason=one["reason"],
        before=loads(one["before"]) if one["before"] else {},
        after=loads(one["after"]) if one["after"] else {},
        former_hash=one["former_hash"],
        hash=one["hash"],
    )
