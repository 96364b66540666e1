"""Turns events into rows. Pure, as `rows` is."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from muster_cli.client import Answer, Document
from muster_cli.moments import moment
from muster_cli.rows import Table, items, table
from muster_shared.time import MS_MAX, format_instant

_INSTANTS: Final = frozenset({"start", "end", "at", "lastReport", "from", "to", "occurrence"})

Names = Mapping[str, str]
"""What people call a node, by its id."""


def events(answer: Answer, *, names: Names, wide: bool) -> list[Table]:
    """One row an event."""
    headers = "SEQ AT TYPE SUBJECT DETAILS" + (" POOL" if wide else "")
    rows = (
        [*event_cells(item, names, answer.now_ms, exact=wide), *([item.get("poolId")] if wide else [])]
        for item in items(answer)
    )
    return [table(headers, rows)]


def event_cells(item: Document, names: Names, now_ms: int | None, *, exact: bool) -> tuple[object, ...]:
    """Return an event's cells: number, time, type, subject, and its data as `key=value`, instants in RFC 3339."""
    told = dict(_told(item["data"]))
    details = " ".join(f"{key}={text}" for key, value in told.items() if (text := _text(key, value, names)))
    at = moment(item["at"], now_ms, exact=exact)
    return (item["seq"], at, item["type"], names.get(item["subject"], item["subject"]), details)


def _told(facts: Document) -> Iterator[tuple[str, Any]]:
    """Yield what an event tells; of labels that had a former value, those that changed."""
    former: Document | None = facts.get("former")
    if former is None:
        yield from facts.items()
        return
    labels: object = former.get("labels")
    whole = cast("Document", labels) if isinstance(labels, dict) else former  # of an inventory, or of labels alone
    yield from _changes(whole, facts.get("labels", {}))
    for key, value in facts.items():
        if key not in {"labels", "former"} and not (key in former and former[key] == value):
            yield key, value


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            was = before.get(key)
            yield key, f"{after.get(key) or '-'} ({f'was {was}' if was else 'new'})"


def _text(key: str, value: object, names: Names) -> str:
    """Write a value; empty where there is nothing to tell."""
    match value:
        case None:
            return ""
        case int() if key in _INSTANTS and 0 <= value < MS_MAX:
            return format_instant(value)
        case list():
            return ",".join(_text("", part, names) for part in cast("list[object]", value))
        case dict():
            return ",".join(f"{name}:{_text(name, part, names)}" for name, part in cast("Document", value).items())
        case _:
            return names.get(str(value), str(value))
