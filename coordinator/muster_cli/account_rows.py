"""Turns quotas and usage into rows. Pure, as `rows` is."""

from muster_cli.client import Answer, Document
from muster_cli.moments import moment
from muster_cli.rows import Table, items, table


def quotas(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a limit, in GPUs."""

    def row(item: Document) -> list[object]:
        left = max(0.0, round(item["gpus"] - item["usedGpus"], 3))
        cells: list[object] = [item["tenantId"], item["poolName"]]
        amounts = [f"{value:g}" for value in (item["gpus"], item["usedGpus"], left)]
        return [*cells, *amounts, moment(item["changed"], answer.now_ms, exact=wide)]

    return [table("TENANT POOL GPUS USED LEFT CHANGED", (row(item) for item in items(answer)))]
