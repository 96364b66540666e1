"""The HTTP API of series, as part of the one table."""

from typing import Final

from muster_coordinator.api.handlers import series
from muster_coordinator.api.operation import Operation
from muster_coordinator.service.bodies import Page
from muster_coordinator.service.series.bodies import (
    OccurrenceChange,
    OccurrenceRequest,
    SeriesEnd,
    SeriesRequest,
    SeriesView,
)
from muster_shared.errors import Code

_MISSING: Final = (Code.NOT_FOUND,)
_REFUSED: Final = (Code.NOT_FOUND, Code.CONFLICT)

CALENDAR_OPERATIONS: Final = (
    Operation(
        "POST",
        "/v1/series",
        "Reserve a gang again and again, by a rule",
        series.create,
        body=SeriesRequest,
        answer=SeriesView,
        status=201,
        errors=(Code.NOT_FOUND, Code.IDEMPOTENCY_MISMATCH, Code.QUOTA_EXCEEDED),
        action="compute:series:create",
    ),
    Operation(
        "GET",
        "/v1/series",
        "List series",
        series.listed,
        query=series.SeriesQuery,
        answer=Page,
        errors=_MISSING,
        action="compute:series:list",
    ),
    Operation(
        "GET",
        "/v1/series/{id}",
        "Show a series and its next occurrences",
        series.shown,
        query=series.AheadQuery,
        answer=SeriesView,
        errors=_MISSING,
        action="compute:series:read",
    ),
    Operation(
        "POST",
        "/v1/series/{id}/skip",
        "Leave one occurrence out",
        series.skipped,
        body=OccurrenceRequest,
        answer=SeriesView,
        errors=_REFUSED,
        action="compute:series:skip",
    ),
    Operation(
        "POST",
        "/v1/series/{id}/unskip",
        "Take back that one was left out",
        series.unskipped,
        body=OccurrenceRequest,
        answer=SeriesView,
        errors=_REFUSED,
        action="compute:series:unskip",
    ),
    Operation(
        "POST",
        "/v1/series/{id}/change",
        "Give one occurrence another window",
        series.changed,
        body=OccurrenceChange,
        answer=SeriesView,
        errors=_REFUSED,
        action="compute:series:change",
    ),
    Operation(
        "POST",
        "/v1/series/{id}/cancel",
        "Cancel every occurrence that has not begun, or all from an instant on",
        series.cancelled,
        body=SeriesEnd,
        answer=SeriesView,
        errors=_REFUSED,
        action="compute:series:cancel",
    ),
)
