"""Turns a pool's calendar into tables with bars: a line for each bucket, or for each day. Pure, as `rows` is."""

from collections.abc import Sequence
from typing import Final

from muster_cli.client import Answer, Document
from muster_cli.rows import Table, table
from muster_shared.time import format_duration, format_instant

_LINES_MAX: Final = 48  # buckets that have a line each: a screenful; more of them are drawn as marks in a line
_BAR: Final = 40  # marks of a full bar: the line has 78 columns then
_SHORT_BAR: Final = 20  # beside a gang and its topology value
_LEVELS: Final = "·▁▂▃▄▅▆▇█"  # of one bucket in a strip: nothing booked, to all
_SPANS_MS: Final = tuple(hours * 3_600_000 for hours in (168, 24, 12, 6, 1))  # what a line of a strip may show


def timeline(answer: Answer, *, wide: bool) -> list[Table]:
    """A line for each bucket; where they are too many, a line of marks for each day."""
    item = answer.document
    buckets: list[Document] = item["buckets"]
    if len(buckets) > _LINES_MAX:
        return [_summary(item, wide=wide), _strip(item, buckets)]
    rows = ((*_counted(bucket), bar(bucket["booked"], item["allocatable"], _BAR)) for bucket in buckets)
    return [_summary(item, wide=wide), table("FROM BOOKED FREE LOAD", rows)]


def outlook(answer: Answer, *, wide: bool) -> list[Table]:
    """A line for each bucket with the largest gang; in the wide form every topology value over time."""
    item = answer.document
    rows = (
        (
            *_counted(bucket),
            bar(bucket["booked"], item["allocatable"], _SHORT_BAR),
            bucket["largestGang"],
            bucket.get("topologyValue"),
        )
        for bucket in item["buckets"]
    )
    told = [_summary(item, wide=wide), table("FROM BOOKED FREE LOAD GANG TOPOLOGY", rows)]
    if wide:
        values = sorted(item["largestGang"].items())
        told.append(
            table("TOPOLOGY LEAST MOST NODES", ((value, min(n), max(n), " ".join(map(str, n))) for value, n in values))
        )
    return told


def bar(booked: int, allocatable: int, marks: int) -> str:
    """Draw what is booked of what there is; neither a single GPU that is booked nor one that is free is lost."""
    whole = max(booked, allocatable)
    if not whole:
        return ""
    filled = -(-booked * marks // whole)
    if booked < whole:
        filled = min(filled, marks - 1)
    return "█" * filled + "░" * (marks - filled)


def _summary(item: Document, *, wide: bool) -> Table:
    buckets: list[Document] = item["buckets"]
    first, last = buckets[0], buckets[-1]
    row = [
        item["allocatable"],
        format_duration(first["end"] - first["start"]),
        format_instant(first["start"]),
        format_instant(last["end"]),
        min(bucket["free"] for bucket in buckets),
        *([item["poolId"]] if wide else []),
    ]
    return table("ALLOCATABLE BUCKET FROM TO LEAST-FREE" + (" POOL" if wide else ""), [row])


def _counted(bucket: Document) -> tuple[str, int, int]:
    return format_instant(bucket["start"]), bucket["booked"], bucket["free"]


def _strip(item: Document, buckets: Sequence[Document]) -> Table:
    """Draw some buckets a line; FREE is the least of them."""
    bucket_ms = buckets[0]["end"] - buckets[0]["start"]
    fitting = (span_ms // bucket_ms for span_ms in _SPANS_MS if bucket_ms <= span_ms <= _LINES_MAX * bucket_ms)
    each = next(fitting, _LINES_MAX)
    lines = [buckets[at : at + each] for at in range(0, len(buckets), each)]
    rows = (
        (
            format_instant(line[0]["start"]),
            "".join(_mark(bucket["booked"], item["allocatable"]) for bucket in line),
            min(bucket["free"] for bucket in line),
        )
        for line in lines
    )
    return table(f"FROM LOAD-BY-{format_duration(bucket_ms).upper()} FREE", rows)


def _mark(booked: int, allocatable: int) -> str:
    whole = max(booked, allocatable)
    most = len(_LEVELS) - 1
    if not whole or booked == whole:
        return _LEVELS[most if booked else 0]
    return _LEVELS[min(-(-booked * most // whole), most - 1)]
