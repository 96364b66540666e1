"""Turns series into tables. Pure, as `rows` is."""

from muster_cli.client import Answer, Document
from muster_cli.moments import moment
from muster_cli.rows import Table, gpus, items, table
from muster_shared.time import format_duration

_SKIPPED = "skipped"


def all_series(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a series; NEXT is its next occurrence that is not skipped."""

    def row(item: Document) -> list[object]:
        _, _, clock = item["first"].partition("T")
        cells: list[object] = [
            item["id"],
            item.get("name"),
            item["tenantId"],
            item["state"],
            gpus(item),
            item["rule"],
            clock[: len("08:00")],
            item["zone"],
            format_duration(item["duration"]),
            _next(item, answer.now_ms, exact=wide),
        ]
        return [*cells, item["poolId"], item["first"]] if wide else cells

    headers = "ID NAME TENANT STATE GPUS RULE AT ZONE FOR NEXT" + (" POOL FIRST" if wide else "")
    return [table(headers, (row(item) for item in items(answer)))]


def one_series(answer: Answer, *, wide: bool) -> list[Table]:
    """One series, and what comes of it next."""
    rows = (
        (
            one["wall"],
            one["state"],
            moment(one["start"], answer.now_ms, exact=wide),
            moment(one["end"], answer.now_ms, exact=wide),
            one.get("reservationId"),
            one.get("reason"),
        )
        for one in answer.document["occurrences"]
    )
    return [*all_series(answer, wide=wide), table("OCCURRENCE STATE START END RESERVATION REASON", rows)]


def _next(item: Document, now_ms: int | None, *, exact: bool) -> str:
    if item["state"] == "ended":
        return f"none: {item.get('reason')}"
    found = (one["start"] for one in item["occurrences"] if one["state"] not in {_SKIPPED, "ended"})
    return moment(next(found, None), now_ms, exact=exact)
