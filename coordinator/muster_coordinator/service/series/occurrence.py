"""A series as it is stored, and what it makes of one instant: an occurrence, its window, its reservation."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Reservation, State
from muster_coordinator.core.series import Recurrence, occurrences
from muster_coordinator.service import draft as drafts
from muster_coordinator.service.bodies import Asked, ReservationRequest
from muster_coordinator.service.series.bodies import SeriesRequest
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import RESERVATION, SERIES
from muster_shared.codec import loads
from muster_shared.errors import Code, Problem
from muster_shared.time import MS_MAX, Window, parse_duration

ACTIVE: Final = "active"
ENDED: Final = "ended"
"""The states of a series."""

UNBEGUN: Final = (State.PENDING, State.PLACED)
"""States of a reservation of which nothing has been handed over."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What makes a reservation an occurrence. No series has two for one instant: the database sees to it."""

    series_id: str
    occurrence_ms: int  # when its rule has it begin; the reservation may begin at another time


@dataclass(frozen=True, slots=True)
class Wanted:
    """A reservation that is to be made."""

    request: ReservationRequest
    reservation: Reservation
    occurrence: Occurrence | None = None  # of a series


@dataclass(frozen=True, slots=True)
class Series:
    """A series with its documents read."""

    id: str
    tenant_id: str
    pool_id: str
    state: str
    end_reason: str | None
    recurrence: Recurrence
    asked: SeriesRequest
    duration_ms: int
    skipped: tuple[int, ...]
    made_until_ms: int
    until_ms: int | None

    @property
    def late_ms(self) -> int | None:
        """How long after its time an occurrence may begin; None for until its window is over."""
        text = self.asked.latest_start_after
        return None if text is None else parse_duration(text)

    def coming(self, from_ms: int, limit: int) -> list[int]:
        """Return the next occurrences from an instant on, skipped ones among them."""
        return occurrences(self.recurrence, from_ms, self.until_ms if self.until_ms is not None else MS_MAX, limit)

    def wanted(self, occurrence_ms: int, reservation_id: str, now_ms: int) -> Wanted:
        """Return the reservation that an occurrence is to be.

        It ends when its window does, however late it begins: occurrences neither run into one another nor pile up.
        """
        window = Window(occurrence_ms, occurrence_ms + self.duration_ms)
        late_ms = self.late_ms
        latest_ms = None if late_ms is None else occurrence_ms + late_ms
        fields: dict[str, Any] = {name: getattr(self.asked, name) for name in Asked.model_fields}
        fields |= {"pool_id": self.pool_id, "idempotency_key": None}
        fields |= {"start": window.start_ms, "end": window.end_ms, "latest_start": latest_ms}
        request = ReservationRequest(**fields)
        shape, grouping = drafts.shape_of(request), drafts.grouping_of(request.gang)
        draft = drafts.Draft(shape, grouping, window.start_ms, window.duration_ms, window.end_ms, latest_ms)
        reservation = draft.reservation(request, reservation_id, self.pool_id, now_ms)
        return Wanted(request, reservation, Occurrence(self.id, occurrence_ms))


def series_of(row: RowMapping) -> Series:
    """Build the value from a row."""
    return Series(
        id=row["id"],
        tenant_id=row["tenant_id"],
        pool_id=row["pool_id"],
        state=row["state"],
        end_reason=row["end_reason"],
        recurrence=Recurrence(row["rule"], row["zone"], row["first"]),
        asked=SeriesRequest.model_validate_json(row["request"]),
        duration_ms=row["duration_ms"],
        skipped=tuple(loads(row["skipped"])),
        made_until_ms=row["made_until_ms"],
        until_ms=row["until_ms"],
    )


def known_series(connection: Connection, series_id: str) -> Series:
    """Read a series.

    Raises:
        Problem: `NOT_FOUND`.
    """
    row = connection.execute(select(SERIES).where(SERIES.c.id == series_id)).mappings().first()
    if row is None:
        raise Problem(Code.NOT_FOUND, f"there is no series {series_id!r}; `muster series` lists yours")
    return series_of(row)


def locked_series(connection: Connection, series_id: str) -> tuple[Series, PoolRow]:
    """Hold a series' pool for a change of it that is still to be made; return both.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` when it has ended.
    """
    pool_row = read.known_pool(connection, known_series(connection, series_id).pool_id, lock=True)
    series = known_series(connection, series_id)
    if series.state != ACTIVE:
        raise Problem(Code.CONFLICT, f"{series.id} has ended ({series.end_reason})")
    return series, pool_row


def record_series(connection: Connection, at: Moment, series: Series, fact: Fact, **changes: object) -> None:
    """Write one change of a series and its event, in a transaction that holds its pool's row."""
    raised = update(SERIES).where(SERIES.c.id == series.id).values(version=SERIES.c.version + 1, **changes)
    version = connection.execute(raised.returning(SERIES.c.version)).scalar_one()
    commit.emit(connection, at, fact, subject=series.id, version=version, pool_id=series.pool_id)


def made_before(connection: Connection, occurrence: Occurrence) -> str | None:
    """Return the reservation that is this occurrence, or None."""
    mine = RESERVATION.c.series_id == occurrence.series_id, RESERVATION.c.occurrence_ms == occurrence.occurrence_ms
    return connection.execute(select(RESERVATION.c.id).where(*mine)).scalar()


def refuse_unwanted(connection: Connection, occurrence: Occurrence) -> None:
    """Check that a series still wants this occurrence.

    Args:
        connection: In a transaction that holds the pool's row, as everybody does who changes a series.
        occurrence: That is about to be made.

    Raises:
        Problem: `CONFLICT`: the series was cancelled meanwhile, or the occurrence skipped.
    """
    series = known_series(connection, occurrence.series_id)
    instant_ms = occurrence.occurrence_ms
    if series.state != ACTIVE or (series.until_ms is not None and instant_ms >= series.until_ms):
        raise Problem(Code.CONFLICT, f"{series.id} has ended, or ends before this occurrence")
    if instant_ms in series.skipped:
        raise Problem(Code.CONFLICT, "this occurrence is skipped; `muster series unskip` takes it back")
