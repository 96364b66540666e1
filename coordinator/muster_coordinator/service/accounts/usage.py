"""What was promised and delivered over a time, exactly: a time that is split in two adds up to the whole."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Select, or_, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import EndReason, State
from muster_coordinator.core.usage import Use, late_ms, milli_ms, promised
from muster_coordinator.service.accounts import metering
from muster_coordinator.service.accounts.usage_bodies import (
    UsageLine,
    UsageQuery,
    UsageRecord,
    UsageRecords,
    UsageTotal,
    UsageView,
)
from muster_coordinator.service.draft import pool_missing
from muster_coordinator.service.when import instant
from muster_coordinator.store import read
from muster_coordinator.store.ledger_tables import CHARGE, USAGE
from muster_coordinator.store.tables import ALLOCATION, RESERVATION
from muster_shared.errors import invalid
from muster_shared.time import Window

_DEFAULT_MS: Final = 30 * 86_400_000  # a month: what most people ask for
_MILLI_MS_PER_GPU_HOUR: Final = 1_000 * 3_600_000
_BY_OWNER: Final = frozenset({EndReason.CANCELLED, EndReason.RELEASED})


def lines(connection: Connection, at: Moment, query: UsageQuery) -> UsageView:
    """Return every reservation that was promised or got anything in a time, and their sums by tenant.

    Raises:
        Problem: `INVALID_INPUT` for a time that is none, or not over; `NOT_FOUND` for the pool.
    """
    period = _period(at, query)
    wanted = _wanted(connection, query, period)
    reservations = connection.execute(select(RESERVATION).where(RESERVATION.c.id.in_(wanted))).mappings().all()
    charges = _charges(connection, wanted)
    uses: defaultdict[str, list[Use]] = defaultdict(list)
    for row in _allocations(connection, at, wanted):
        uses[row["reservation_id"]].append(_use(row))
    items = [
        line
        for row in sorted(reservations, key=lambda one: (one["tenant_id"], one["id"]))
        if (line := _line(at, period, row, charges[row["id"]], uses[row["id"]])).promised_milli_ms
        or line.delivered_milli_ms
    ]
    return UsageView(start=period.start_ms, end=period.end_ms, items=items, totals=_totals(items))


def records(connection: Connection, at: Moment, query: UsageQuery) -> UsageRecords:
    """Return what each allocation held in a time, those that still hold it as well.

    Raises:
        Problem: As `lines`.
    """
    period = _period(at, query)
    wanted = _wanted(connection, query, period)
    found = connection.execute(select(RESERVATION.c.id, RESERVATION.c.name).where(RESERVATION.c.id.in_(wanted)))
    names = {row.id: row.name for row in found}
    items: list[UsageRecord] = []
    for row in _allocations(connection, at, wanted):
        use, is_final = _use(row), row["end_ms"] is not None
        start_ms, end_ms = max(use.start_ms, period.start_ms), min(use.end_ms, period.end_ms)
        if start_ms < end_ms:
            known = {key: value for key, value in row.items() if key not in {"start_ms", "end_ms", "now_ms"}}
            items.append(
                UsageRecord(
                    **known,
                    name=names[row["reservation_id"]],
                    start=start_ms,
                    end=end_ms,
                    milli_ms=milli_ms([use], period),
                    final=is_final,
                )
            )
    return UsageRecords(start=period.start_ms, end=period.end_ms, items=items)


def _period(at: Moment, query: UsageQuery) -> Window:
    end_ms = at.ms if query.end is None else instant("to", query.end, at.ms)
    if end_ms > at.ms:
        raise invalid("to", "what lies ahead is not used yet: give now, or an earlier instant")
    start_ms = max(0, end_ms - _DEFAULT_MS) if query.start is None else instant("from", query.start, at.ms)
    if start_ms >= end_ms:
        raise invalid("from", "it must be before the end of the time that is asked for")
    return Window(start_ms, end_ms)


def _wanted(connection: Connection, query: UsageQuery, period: Window) -> Select[tuple[str]]:
    """Select the reservations that may have been promised or given anything in a time."""
    wanted = select(RESERVATION.c.id).where(
        RESERVATION.c.generation > 0,
        RESERVATION.c.start_ms < period.end_ms,
        or_(RESERVATION.c.ended_ms.is_(None), RESERVATION.c.ended_ms > period.start_ms, _promise_lasts(period)),
    )
    if query.tenant_id is not None:
        wanted = wanted.where(RESERVATION.c.tenant_id == query.tenant_id)
    if query.pool_id is not None:
        pool_row = read.pool(connection, query.pool_id)
        if pool_row is None:
            raise pool_missing(query.pool_id)
        wanted = wanted.where(RESERVATION.c.pool_id == pool_row.id)
    return wanted


def _promise_lasts(period: Window) -> Any:  # noqa: ANN401 - a condition
    return RESERVATION.c.start_ms + RESERVATION.c.duration_ms > period.start_ms


def _charges(connection: Connection, wanted: Select[tuple[str]]) -> Mapping[str, list[tuple[int, int, int | None]]]:
    found: defaultdict[str, list[tuple[int, int, int | None]]] = defaultdict(list)
    mine = select(CHARGE).where(CHARGE.c.reservation_id.in_(wanted))
    for row in connection.execute(mine.order_by(CHARGE.c.reservation_id, CHARGE.c.number)):
        found[row.reservation_id].append((row.milli, row.charged_ms, row.returned_ms))
    return found


def _allocations(connection: Connection, at: Moment, wanted: Select[tuple[str]]) -> list[dict[str, Any]]:
    """Return what is over with its end, and what goes on with none; by tenant, reservation and allocation."""
    kept = connection.execute(select(USAGE).where(USAGE.c.reservation_id.in_(wanted))).mappings()
    rows = [{**row, "now_ms": at.ms} for row in kept]
    goes_on = (
        ALLOCATION.c.bind_state.not_in(metering.OVER),
        ALLOCATION.c.reservation_id.in_(wanted),
        RESERVATION.c.activated_ms.is_not(None),
    )
    rows += [{**metering.record(row), "end_ms": None, "now_ms": at.ms} for row in metering.bound(connection, *goes_on)]
    return sorted(rows, key=lambda row: (row["tenant_id"], row["reservation_id"], row["allocation_id"]))


def _use(row: Mapping[str, Any]) -> Use:
    end_ms = row["now_ms"] if row["end_ms"] is None else row["end_ms"]
    return Use(row["milli"], row["start_ms"], max(row["start_ms"], end_ms))


def _line(
    at: Moment,
    period: Window,
    row: RowMapping,
    charges: Sequence[tuple[int, int, int | None]],
    uses: Sequence[Use],
) -> UsageLine:
    window = Window(row["start_ms"], row["start_ms"] + row["duration_ms"])
    ended_ms = row["ended_ms"]
    given_up_ms = ended_ms if row["end_reason"] in _BY_OWNER else None
    promise = milli_ms(promised(charges, window, given_up_ms), period)
    delivery = milli_ms(uses, period)
    until_ms = min(window.end_ms, at.ms if ended_ms is None else ended_ms)
    return UsageLine(
        reservation_id=row["id"],
        name=row["name"],
        tenant_id=row["tenant_id"],
        pool_id=row["pool_id"],
        budget=row["budget"],
        kind="spot" if row["spot"] else "regular",
        promised_milli_ms=promise,
        delivered_milli_ms=delivery,
        promised_gpu_hours=_gpu_hours(promise),
        delivered_gpu_hours=_gpu_hours(delivery),
        late_ms=late_ms(window.start_ms, row["activated_ms"], until_ms),
        final=row["state"] == State.ENDED,
    )


def _totals(items: Iterable[UsageLine]) -> list[UsageTotal]:
    groups: defaultdict[tuple[str, str, str], list[UsageLine]] = defaultdict(list)
    for item in items:
        groups[item.tenant_id, item.budget or "", item.kind].append(item)
    return [
        UsageTotal(
            tenant_id=mine[0].tenant_id,
            budget=mine[0].budget,
            kind=mine[0].kind,
            reservations=len(mine),
            promised_milli_ms=(promise := sum(one.promised_milli_ms for one in mine)),
            delivered_milli_ms=(delivery := sum(one.delivered_milli_ms for one in mine)),
            promised_gpu_hours=_gpu_hours(promise),
            delivered_gpu_hours=_gpu_hours(delivery),
            late_ms=sum(one.late_ms for one in mine),
        )
        for _, mine in sorted(groups.items())
    ]


def _gpu_hours(amount: int) -> float:
    return round(amount / _MILLI_MS_PER_GPU_HOUR, 6)
