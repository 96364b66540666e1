"""Turns receivers and deliveries into rows. Pure, as `rows` is."""

from muster_cli.client import Answer, Document
from muster_cli.moments import moment
from muster_cli.rows import Table, items, table


def webhooks(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a receiver."""
    headers = "NAME STATE WAITING OLDEST DEAD TYPES URL" + (" ID CREATED" if wide else "")

    def row(item: Document) -> list[object]:
        oldest = moment(item.get("oldestWaiting"), answer.now_ms, exact=wide)
        types = " ".join(item["types"]) or "all"
        cells: list[object] = [item["name"], _state(item, answer, wide=wide), item["waiting"], oldest, item["dead"]]
        more = [item["id"], moment(item["created"], answer.now_ms, exact=True)] if wide else []
        return [*cells, types, item["url"], *more]

    return [table(headers, (row(item) for item in items(answer)))]


def deliveries(answer: Answer, *, wide: bool) -> list[Table]:
    """One row an event that was or is to be sent."""
    headers = "SEQ TYPE SUBJECT STATE ATTEMPTS WHEN ERROR" + (" EVENT" if wide else "")

    def row(item: Document) -> list[object]:
        when = moment(item.get("done") or item.get("next"), answer.now_ms, exact=wide)
        cells: list[object] = [item[name] for name in ("seq", "type", "subject", "state", "attempts")]
        return [*cells, when, item.get("error"), *([item["eventId"]] if wide else [])]

    return [table(headers, (row(item) for item in items(answer)))]


def test(answer: Answer, *, wide: bool) -> list[Table]:
    """What came of a ping."""
    del wide
    item = answer.document
    row = ("yes" if item["delivered"] else "no", item.get("status"), item.get("error"), item["eventId"])
    return [table("DELIVERED STATUS ERROR EVENT", [row])]


def _state(item: Document, answer: Answer, *, wide: bool) -> str:
    words = ["on" if item["enabled"] else "off"]
    if item.get("failingSince") is not None:
        words.append(f"failing since {moment(item['failingSince'], answer.now_ms, exact=wide)}")
    if item["rotating"]:
        words.append("two secrets")
    return ", ".join(words)
