"""Turns the coordinator's documents into tables. Pure: equal answers give equal tables."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from muster_cli.client import Answer, Document
from muster_cli.moments import moment

FABRIC_DOMAIN = "fabric.domain"


@dataclass(frozen=True, slots=True)
class Table:
    """Headers in upper case, and rows of as many cells."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def items(answer: Answer) -> list[Document]:
    """Return the documents of a page, or the one document that is none."""
    found: list[Document] = answer.document.get("items", [answer.document])
    return found


def table(headers: str, rows: Iterable[Iterable[object]]) -> Table:
    """Make a table; what is absent or empty is shown as `-`."""
    return Table(tuple(headers.split()), tuple(tuple(_cell(value) for value in row) for row in rows))


def reservations(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a reservation; the reason that it is not running stands in its row."""

    def row(item: Document) -> list[object]:
        start = moment(item.get("start"), answer.now_ms, exact=wide)
        end = moment(item.get("end"), answer.now_ms, exact=wide)
        cells: list[object] = [item["id"], item["tenantId"], item["state"], _gpus(item), start, end, _reason(item)]
        if wide:
            names = [member["nodeName"] for member in item["members"]]
            cells += [item.get("name"), item["poolId"], item.get("topologyValue"), names]
        return cells

    headers = "ID TENANT STATE GPUS START END REASON" + (" NAME POOL TOPOLOGY NODES" if wide else "")
    return [table(headers, (row(item) for item in items(answer)))]


def reservation(answer: Answer, *, wide: bool) -> list[Table]:
    """One reservation with its members, and what blocks it."""
    return [*reservations(answer, wide=wide), members(answer, wide=wide), blockers(answer, wide=wide)]


def preview(answer: Answer, *, wide: bool) -> list[Table]:
    """What placing a request now would do."""
    item = answer.document
    start, end = (moment(item[name], answer.now_ms, exact=wide) for name in ("start", "end"))
    row = ("yes" if item["fits"] else "no", start, end, item.get("topologyValue"), _condition(item))
    return [table("FITS START END TOPOLOGY REASON", [row]), members(answer, wide=wide), blockers(answer, wide=wide)]


def members(answer: Answer, *, wide: bool) -> Table:
    """One row a member; its devices are counted, or named in the wide form."""
    rows = [
        (
            member["nodeName"],
            member.get("bindState"),
            " ".join(member["devices"]) if wide else len(member["devices"]),
            member.get("bindReason"),
        )
        for member in answer.document.get("members", ())
    ]
    return table("NODE BINDING DEVICES REASON", rows)


def blockers(answer: Answer, *, wide: bool) -> Table:
    """Why nodes could not take part, and until when that is known to last."""
    condition: Document = answer.document.get("condition") or {}
    rows = [
        (blocker["reason"], blocker["nodes"], moment(blocker.get("until"), answer.now_ms, exact=wide))
        for blocker in condition.get("blockers", ())
    ]
    return table("BLOCKED-BY NODES UNTIL", rows)


def nodes(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a node; in the wide form its holds are told one by one."""

    def row(item: Document) -> list[object]:
        holds = [_hold(hold, wide=wide) for hold in item["holds"]]
        counted = [f"{hold} x{count}" if count > 1 else hold for hold, count in Counter(holds).items()]
        report = moment(item.get("lastReport"), answer.now_ms, exact=wide)
        free = f"{item['gpusFree']}/{item['gpusTotal']}"
        cells: list[object] = [item["name"], _node_state(item), free, _fabric(item), ", ".join(counted), report]
        if wide:
            others = sorted((key, value) for key, value in item["labels"].items() if key != FABRIC_DOMAIN)
            cells += [item["id"], item["poolId"], item.get("agentVersion"), " ".join(f"{k}={v}" for k, v in others)]
        return cells

    headers = "NAME STATE FREE FABRIC HOLDS REPORTED" + (" ID POOL AGENT LABELS" if wide else "")
    return [table(headers, (row(item) for item in items(answer)))]


def node(answer: Answer, *, wide: bool) -> list[Table]:
    """One node with its devices."""
    gpus = [
        (gpu["uuid"], gpu["model"], f"{gpu['memoryMib'] // 1024}GiB", gpu.get("island", 0), gpu["pci"], _seen(gpu))
        for gpu in answer.document["gpus"]
    ]
    return [*nodes(answer, wide=wide), table("DEVICE MODEL MEMORY ISLAND PCI STATE", gpus)]


def pools(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a pool, in whole GPUs."""
    fields = ("name", "nodes", "total", "allocatable", "active", "reserved", "free")

    def row(item: Document) -> list[object]:
        held = " ".join(f"{cause}={count}" for cause, count in sorted(item["held"].items()))
        largest = max(item["largestGang"].values(), default=0)
        cells: list[object] = [*(item[name] for name in fields), held, largest]
        return [*cells, item["id"]] if wide else cells

    headers = "NAME NODES TOTAL ALLOCATABLE ACTIVE RESERVED FREE HELD LARGEST-GANG" + (" ID" if wide else "")
    return [table(headers, (row(item) for item in items(answer)))]


def pool(answer: Answer, *, wide: bool) -> list[Table]:
    """One pool, its fabrics and its policy."""
    fabrics = table("FABRIC FREE-NODES", sorted(answer.document["largestGang"].items()))
    policy = table("POLICY VALUE", sorted(answer.document["policy"].items()))
    return [*pools(answer, wide=wide), fabrics, policy]


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
    details = " ".join(f"{key}={_cell(value)}" for key, value in item["data"].items())
    return (item["seq"], moment(item["at"], now_ms, exact=exact), item["type"], item["subject"], details)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(part) for part in cast("list[object]", value)) or "-"
    return "-" if value in (None, "") else str(value)


def _gpus(item: Document) -> str:
    """Write `8`, or `4x8` for a gang of four nodes."""
    each = sum(device["count"] for device in item["devices"])
    size = item.get("gang", {}).get("size", 1)
    return str(each) if size == 1 else f"{size}x{each}"


def _reason(item: Document) -> str | None:
    if item["state"] == "ended":
        return item.get("reason")
    if item.get("condition"):
        return _condition(item)
    if item.get("atRisk"):
        return f"at risk: {', '.join(item['atRisk'])}"
    if item["state"] in {"binding", "ending"}:
        done = {"binding": "bound", "ending": "released"}[item["state"]]
        waiting = [member["nodeName"] for member in item["members"] if member.get("bindState") != done]
        return f"waiting for {', '.join(waiting)}" if waiting else None
    return None


def _condition(item: Document) -> str | None:
    condition: Document | None = item.get("condition")
    return f"{condition['reason']}: {condition['message']}" if condition else None


def _node_state(item: Document) -> str:
    words = [] if item["intent"] == "schedulable" else [item["intent"]]
    words += ["leased"] if item["leased"] else []
    words += [] if item["reachable"] else ["unreachable"]
    return ",".join(words) or "ready"


def _fabric(item: Document) -> str | None:
    reason = item.get("fabricReason")
    return item["labels"].get(FABRIC_DOMAIN) or (f"({reason})" if reason else None)


def _hold(hold: Document, *, wide: bool) -> str:
    cause = hold["cause"] if hold.get("code") is None else f"{hold['cause']}:{hold['code']}"
    return f"{cause} on {hold['device']}" if wide and hold.get("device") else cause


def _seen(gpu: Document) -> str:
    return "present" if gpu.get("seen", True) else "lost"
