"""Turns events into rows. Pure, as `rows` is."""

from muster_cli.client import Answer, Document
from muster_cli.moments import moment
from muster_cli.rows import Table, cell, items, table


def events(answer: Answer, *, wide: bool) -> list[Table]:
    """One row an event."""
    headers = "SEQ AT TYPE SUBJECT DETAILS" + (" POOL" if wide else "")
    rows = (
        [*event_cells(item, answer.now_ms, exact=wide), *([item.get("poolId")] if wide else [])]
        for item in items(answer)
    )
    return [table(headers, rows)]


def event_cells(item: Document, now_ms: int | None, *, exact: bool) -> tuple[object, ...]:
    """Return an event's cells: number, time, type, subject, and its data as `key=value`."""
    details = " ".join(f"{key}={cell(value)}" for key, value in item["data"].items())
    return (item["seq"], moment(item["at"], now_ms, exact=exact), item["type"], item["subject"], details)
