"""Turns quotas and usage into rows. Pure, as `rows` is."""

from typing import Final

from muster_cli.client import Answer, Document
from muster_cli.moments import moment
from muster_cli.rows import Table, items, table
from muster_shared.time import format_duration

_SECOND_MS: Final = 1_000
_MILLI_MS_PER_GPU_HOUR: Final = 1_000 * 3_600_000


def quotas(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a limit, in GPUs."""

    def row(item: Document) -> list[object]:
        left = max(0.0, round(item["gpus"] - item["usedGpus"], 3))
        cells: list[object] = [item["tenantId"], item["poolName"]]
        amounts = [f"{value:g}" for value in (item["gpus"], item["usedGpus"], left)]
        return [*cells, *amounts, moment(item["changed"], answer.now_ms, exact=wide)]

    return [table("TENANT POOL GPUS USED LEFT CHANGED", (row(item) for item in items(answer)))]


def usage(answer: Answer, *, wide: bool) -> list[Table]:
    """The sums of each tenant, and with `wide` each reservation below them."""

    def amounts(item: Document) -> list[object]:
        late = format_duration(item["lateMs"] // 1_000 * 1_000) if item["lateMs"] >= _SECOND_MS else "-"
        return [f"{item['promisedGpuHours']:.2f}", f"{item['deliveredGpuHours']:.2f}", late]

    document = answer.document
    totals = (
        [item["tenantId"], item.get("budget"), item["kind"], item["reservations"], *amounts(item)]
        for item in document["totals"]
    )
    tables = [table("TENANT BUDGET KIND RESERVATIONS PROMISED DELIVERED LATE", totals)]
    if wide:
        lines = (
            [
                item["reservationId"],
                item.get("name"),
                item["tenantId"],
                *amounts(item),
                "yes" if item["final"] else "no",
            ]
            for item in document["items"]
        )
        tables.append(table("RESERVATION NAME TENANT PROMISED DELIVERED LATE FINAL", lines))
    return tables


def records(answer: Answer, *, wide: bool) -> list[Table]:
    """One row an allocation."""

    def row(item: Document) -> list[object]:
        times = [moment(item[name], answer.now_ms, exact=wide) for name in ("start", "end")]
        hours = f"{item['milliMs'] / _MILLI_MS_PER_GPU_HOUR:.3f}"
        return [
            item["allocationId"],
            item["reservationId"],
            item["tenantId"],
            item["kind"],
            item["nodeId"],
            *times,
            hours,
        ]

    return [table("ALLOCATION RESERVATION TENANT KIND NODE START END GPU-HOURS", (row(one) for one in items(answer)))]


def findings(answer: Answer, *, wide: bool) -> list[Table]:  # noqa: ARG001 - every drawing takes it
    """One row a broken rule."""
    rows = ([item[key] for key in ("rule", "subject", "message", "says")] for item in items(answer))
    return [table("RULE SUBJECT FINDING MUST-HOLD", rows)]
