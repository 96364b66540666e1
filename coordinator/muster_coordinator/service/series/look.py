"""Reads only: series as the API shows them, with what comes of each next."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import Connection, RowMapping, or_, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import State
from muster_coordinator.core.series import shown, zone_of
from muster_coordinator.service.look import condition_told, known_pool
from muster_coordinator.service.series.bodies import OccurrenceView, SeriesView
from muster_coordinator.service.series.occurrence import ACTIVE, ENDED, Series, series_of
from muster_coordinator.service.waiting import conditions
from muster_coordinator.store.tables import RESERVATION, SERIES
from muster_shared.errors import Code, Problem

Rows = Mapping[str, Mapping[int, RowMapping]]
"""Reservations by series and occurrence."""


def one_series(connection: Connection, at: Moment, series_id: str, ahead: int) -> SeriesView:
    """Show one series with its next occurrences, at most `ahead`.

    Raises:
        Problem: `NOT_FOUND`.
    """
    row = connection.execute(select(SERIES).where(SERIES.c.id == series_id)).mappings().first()
    if row is None:
        raise Problem(Code.NOT_FOUND, f"there is no series {series_id!r}; `muster series` lists yours")
    return _views(connection, at, [row], ahead)[0]


def all_series(
    connection: Connection,
    at: Moment,
    *,
    tenant_id: str | None = None,
    pool_id: str | None = None,
    state: str | None = None,
    after: str | None = None,
    limit: int,
) -> list[SeriesView]:
    """List series in the order of their ids, which is that in which they were made, each with its next occurrence."""
    wanted = select(SERIES).order_by(SERIES.c.id).limit(limit)
    if tenant_id is not None:
        wanted = wanted.where(SERIES.c.tenant_id == tenant_id)
    if pool_id is not None:
        wanted = wanted.where(SERIES.c.pool_id == known_pool(connection, pool_id).id)
    if state is not None:
        wanted = wanted.where(SERIES.c.state == state)
    if after is not None:
        wanted = wanted.where(SERIES.c.id > after)
    return _views(connection, at, connection.execute(wanted).mappings().all(), 1)


def _views(connection: Connection, at: Moment, rows: Collection[RowMapping], ahead: int) -> list[SeriesView]:
    made, told = _made(connection, at, [row["id"] for row in rows])
    return [_view(row, at, made.get(row["id"], {}), told, ahead) for row in rows]


def _made(
    connection: Connection, at: Moment, series_ids: Collection[str]
) -> tuple[Rows, Mapping[tuple[str, str], str]]:
    """Return the reservations of series that are not over, and what their lines were told."""
    current = or_(RESERVATION.c.state != State.ENDED, RESERVATION.c.start_ms + RESERVATION.c.duration_ms > at.ms)
    wanted = select(RESERVATION).where(
        RESERVATION.c.series_id.in_(series_ids), RESERVATION.c.occurrence_ms.is_not(None), current
    )
    found = connection.execute(wanted).mappings().all()
    made: defaultdict[str, dict[int, RowMapping]] = defaultdict(dict)
    for row in found:
        made[row["series_id"]][row["occurrence_ms"]] = row
    return made, conditions(connection, {row["pool_id"] for row in found if row["wait_key"]})


def _view(
    row: RowMapping, at: Moment, made: Mapping[int, RowMapping], told: Mapping[tuple[str, str], str], ahead: int
) -> SeriesView:
    series = series_of(row)
    ahead_ms = [] if series.state != ACTIVE else series.coming(at.ms + 1 - series.duration_ms, ahead)
    # What has not let go yet is shown even where its time is over, or its series.
    alive = {one for one, its in made.items() if its["state"] != State.ENDED}
    chosen = sorted({*ahead_ms, *(one for one in alive if len(ahead_ms) < ahead or one <= ahead_ms[-1])})[:ahead]
    return SeriesView(
        id=series.id,
        tenant_id=series.tenant_id,
        pool_id=series.pool_id,
        name=row["name"],
        state=ACTIVE if series.state == ACTIVE else ENDED,
        reason=series.end_reason,
        rule=series.recurrence.rule,
        zone=series.recurrence.zone,
        first=series.recurrence.first,
        duration=series.duration_ms,
        latest_start_after=series.late_ms,
        until=series.until_ms,
        devices=series.asked.devices,
        gang=series.asked.gang,
        node_selector=series.asked.node_selector,
        labels=series.asked.labels,
        occurrences=[_occurrence(series, one, made.get(one), told) for one in chosen],
        skipped=[one for one in series.skipped if one > at.ms],
        made_until=series.made_until_ms,
        version=row["version"],
        created=row["created_ms"],
        ended=row["ended_ms"],
        idempotency_key=row["idempotency_key"],
    )


def _occurrence(
    series: Series, occurrence_ms: int, row: RowMapping | None, told: Mapping[tuple[str, str], str]
) -> OccurrenceView:
    wall = shown(occurrence_ms, zone_of(series.recurrence.zone))
    if row is None:
        is_skipped = occurrence_ms in series.skipped
        return OccurrenceView(
            occurrence=occurrence_ms,
            wall=wall,
            start=occurrence_ms,
            end=occurrence_ms + series.duration_ms,
            state="skipped" if is_skipped else "planned",
        )
    condition = condition_told(row, told)
    return OccurrenceView(
        occurrence=occurrence_ms,
        wall=wall,
        start=row["start_ms"],
        end=row["start_ms"] + row["duration_ms"],
        state=State(row["state"]).value,
        reservation_id=row["id"],
        reason=row["end_reason"] or (None if condition is None else f"{condition.reason}: {condition.message}"),
    )
