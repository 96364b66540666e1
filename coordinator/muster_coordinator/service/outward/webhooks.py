"""Receivers of webhooks: made, changed, looked at, and sent again what they missed."""

from typing import Final

from sqlalchemy import ColumnElement, Connection, RowMapping, delete, func, insert, literal, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.event_types import type_fault
from muster_coordinator.core.webhook.signature import new_secret
from muster_coordinator.core.webhook.targets import Allowed, url_fault
from muster_coordinator.service.outward.bodies import DeliveryView, ReplayRequest, WebhookRequest, WebhookView
from muster_coordinator.service.outward.events import Filter, conditions
from muster_coordinator.service.outward.outbox import CLAIM_MS
from muster_coordinator.store import commit, outbox
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.outbox import DEAD, WAITING
from muster_coordinator.store.tables import DELIVERY, EVENT, WEBHOOK
from muster_shared.codec import dumps, loads
from muster_shared.errors import Code, Problem, invalid

_RECEIVERS_MAX: Final = 100  # each adds a row to every event that it wants


def create(connection: Connection, at: Moment, wanted: WebhookRequest, random: str, inside: Allowed) -> str:
    """Make a receiver; return its id.

    Args:
        connection: In a transaction.
        at: Now.
        wanted: As it was asked for.
        random: 256 bits that nobody can guess, of which its secret is made.
        inside: Where webhooks may go beside the public internet.

    Raises:
        Problem: `INVALID_INPUT` for a URL or type that cannot be one; `CONFLICT` for a name that is taken.
    """
    if fault := url_fault(wanted.url, inside):
        raise invalid("url", fault)
    for number, fault in ((number, type_fault(kind)) for number, kind in enumerate(wanted.types)):
        if fault:
            raise invalid(f"types.{number}", fault)
    named = select(WEBHOOK.c.name)
    names = set(connection.execute(named).scalars())
    if wanted.name in names:
        raise Problem(Code.CONFLICT, f"there is a receiver {wanted.name!r} already; `muster webhooks get` shows it")
    if len(names) >= _RECEIVERS_MAX:
        raise Problem(Code.CONFLICT, f"there are {_RECEIVERS_MAX} receivers; remove one that nobody needs first")
    webhook_id = at.new_id("whk")
    columns = {"name": wanted.name, "url": wanted.url, "types": dumps(wanted.types).decode(), "version": 1}
    secret = new_secret(random)
    connection.execute(insert(WEBHOOK).values(id=webhook_id, secret=secret, enabled=True, created_ms=at.ms, **columns))
    fact = Fact("webhook.created", {"name": wanted.name, "url": wanted.url, "types": wanted.types})
    commit.emit(connection, at, fact, subject=webhook_id, version=1, pool_id=None)
    return webhook_id


def rotate(connection: Connection, at: Moment, name: str, random: str) -> None:
    """Give a receiver a new secret; what is sent is signed with the former one, too, until `finish`.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` while the last change of its secret is not finished.
    """
    row = _locked(connection, name)
    if row["former_secret"] is not None:
        raise Problem(
            Code.CONFLICT,
            f"the secret of {row['name']!r} is being changed already: once the receiver knows the new one, "
            f"`muster webhooks rotate {row['name']} --finish`",
        )
    fact = Fact("webhook.secret_changed", {"name": row["name"]})
    _record(connection, at, row, fact, secret=new_secret(random), former_secret=row["secret"])


def finish(connection: Connection, at: Moment, name: str) -> None:
    """Sign with the new secret alone from now on; nothing happens where only one is in use.

    Raises:
        Problem: `NOT_FOUND`.
    """
    row = _locked(connection, name)
    if row["former_secret"] is not None:
        _record(connection, at, row, Fact("webhook.secret_settled", {"name": row["name"]}), former_secret=None)


def enable(connection: Connection, at: Moment, name: str, reason: str | None, *, enabled: bool) -> None:
    """Send to a receiver, or stop. While stopped, what waits is kept, and nothing new is queued.

    Raises:
        Problem: `NOT_FOUND`.
    """
    row = _locked(connection, name)
    if row["enabled"] != enabled:
        kind = "webhook.enabled" if enabled else "webhook.disabled"
        fact = Fact(kind, {"name": row["name"], "reason": reason})
        _record(connection, at, row, fact, enabled=enabled, failing_since_ms=None)
        if enabled:
            outbox.hasten(connection, row["id"], at.ms, later_than_ms=at.ms + CLAIM_MS)


def remove(connection: Connection, at: Moment, name: str, reason: str | None) -> None:
    """Forget a receiver, and what was on its way to it. The events stay in the log.

    Raises:
        Problem: `NOT_FOUND`.
    """
    row = _locked(connection, name)
    _record(connection, at, row, Fact("webhook.removed", {"name": row["name"], "reason": reason}))
    connection.execute(delete(DELIVERY).where(DELIVERY.c.webhook_id == row["id"]))
    connection.execute(delete(WEBHOOK).where(WEBHOOK.c.id == row["id"]))


def replay(connection: Connection, at: Moment, name: str, asked: ReplayRequest) -> int:
    """Queue events again; return how many.

    Raises:
        Problem: `NOT_FOUND`; `INVALID_INPUT` for an `until` without `after`, or before it.
    """
    row = _locked(connection, name)
    if asked.until is not None and (asked.after is None or asked.until <= asked.after):
        raise invalid("until", "goes with after, and lies behind it")
    mine = DELIVERY.c.webhook_id == row["id"]
    again = update(DELIVERY).values(state=WAITING, attempts=0, next_ms=at.ms, done_ms=None, error=None)
    if asked.after is None:
        queued = connection.execute(again.where(mine, DELIVERY.c.state == DEAD)).rowcount
    else:
        queued = connection.execute(
            again.where(mine, DELIVERY.c.state != WAITING, *_between(DELIVERY.c.seq, asked))
        ).rowcount
        known = select(DELIVERY.c.seq).where(mine)
        columns = (literal(row["id"]), EVENT.c.seq, literal(WAITING), literal(0), literal(at.ms))
        wanted = conditions(Filter(types=loads(row["types"])))
        missing = select(*columns).where(
            *_between(EVENT.c.seq, asked), EVENT.c.subject != row["id"], EVENT.c.seq.not_in(known), *wanted
        )
        into = ["webhook_id", "seq", "state", "attempts", "next_ms"]
        queued += connection.execute(insert(DELIVERY).from_select(into, missing)).rowcount
    if queued:
        _record(connection, at, row, Fact("webhook.replayed", {"name": row["name"], "queued": queued}))
    return queued


def _between(seq: ColumnElement[int], asked: ReplayRequest) -> list[ColumnElement[bool]]:
    """Return what a number must satisfy that lies after `after`, and not behind `until`."""
    return [seq > asked.after, *([] if asked.until is None else [seq <= asked.until])]


def shown(connection: Connection, name: str) -> WebhookView:
    """Show one receiver, by id or name.

    Raises:
        Problem: `NOT_FOUND`.
    """
    return _views(connection, [_row(connection, name)])[0]


def listed(connection: Connection) -> list[WebhookView]:
    """List receivers by name."""
    return _views(connection, list(connection.execute(select(WEBHOOK).order_by(WEBHOOK.c.name)).mappings()))


def secrets_of(connection: Connection, name: str) -> tuple[str, str, tuple[str, ...]]:
    """Return a receiver's id, its URL, and the secrets that sign what it is sent, the newest first.

    Raises:
        Problem: `NOT_FOUND`.
    """
    row = _row(connection, name)
    return row["id"], row["url"], outbox.secrets(row)


def deliveries(
    connection: Connection, name: str, *, state: str | None, before: int | None, limit: int
) -> list[DeliveryView]:
    """List what was or is to be sent to a receiver, the newest event first.

    Raises:
        Problem: `NOT_FOUND`.
    """
    row = _row(connection, name)
    columns = (EVENT.c.id, EVENT.c.type, EVENT.c.subject)
    wanted = (
        select(DELIVERY, *columns)
        .join(EVENT, EVENT.c.seq == DELIVERY.c.seq)
        .where(DELIVERY.c.webhook_id == row["id"])
        .order_by(DELIVERY.c.seq.desc())
        .limit(limit)
    )
    if state is not None:
        wanted = wanted.where(DELIVERY.c.state == state)
    if before is not None:
        wanted = wanted.where(DELIVERY.c.seq < before)
    return [_delivery(one) for one in connection.execute(wanted).mappings()]


def _delivery(row: RowMapping) -> DeliveryView:
    return DeliveryView(
        seq=row["seq"],
        event_id=row["id"],
        type=row["type"],
        subject=row["subject"],
        state=row["state"],
        attempts=row["attempts"],
        next=row["next_ms"] if row["state"] == WAITING else None,
        done=row["done_ms"],
        error=row["error"],
    )


def _views(connection: Connection, rows: list[RowMapping]) -> list[WebhookView]:
    columns = (DELIVERY.c.webhook_id, DELIVERY.c.state)
    counted = (
        select(*columns, func.count().label("events"), func.min(EVENT.c.at_ms).label("oldest_ms"))
        .join(EVENT, EVENT.c.seq == DELIVERY.c.seq)
        .where(DELIVERY.c.state.in_((WAITING, DEAD)))
        .group_by(*columns)
    )
    found = {(one.webhook_id, one.state): one for one in connection.execute(counted)}
    views: list[WebhookView] = []
    for row in rows:
        waiting, dead = found.get((row["id"], WAITING)), found.get((row["id"], DEAD))
        views.append(
            WebhookView(
                id=row["id"],
                name=row["name"],
                url=row["url"],
                types=loads(row["types"]),
                enabled=row["enabled"],
                rotating=row["former_secret"] is not None,
                waiting=waiting.events if waiting else 0,
                dead=dead.events if dead else 0,
                oldest_waiting=waiting.oldest_ms if waiting else None,
                failing_since=row["failing_since_ms"],
                created=row["created_ms"],
                version=row["version"],
            )
        )
    return views


def _row(connection: Connection, name: str) -> RowMapping:
    wanted = select(WEBHOOK).where((WEBHOOK.c.id == name) | (WEBHOOK.c.name == name))
    row = connection.execute(wanted).mappings().first()
    if row is None:
        raise _missing(name)
    return row


def _locked(connection: Connection, name: str) -> RowMapping:
    row = outbox.locked(connection, name)
    if row is None:
        raise _missing(name)
    return row


def _missing(name: str) -> Problem:
    return Problem(Code.NOT_FOUND, f"there is no receiver {name!r}; `muster webhooks` lists them")


def _record(connection: Connection, at: Moment, row: RowMapping, fact: Fact, **columns: object) -> None:
    version = outbox.changed(connection, row["id"], **columns)
    commit.emit(connection, at, fact, subject=row["id"], version=version, pool_id=None)
