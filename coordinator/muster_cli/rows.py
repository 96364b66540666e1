"""Turns the coordinator's documents into tables. Pure: equal answers give equal tables."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

from muster_cli.client import Answer, Document
from muster_cli.moments import SECOND_MS, moment
from muster_shared.devices import MILLI_PER_GPU
from muster_shared.time import format_duration


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
    return Table(tuple(headers.split()), tuple(tuple(cell(value) for value in row) for row in rows))


def reservations(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a reservation; the reason that it is not running stands in its row."""
    return [_reservations(answer, ("NAME", "SERIES"), wide=wide)]


def reservation(answer: Answer, *, wide: bool) -> list[Table]:
    """One reservation with its members, and what blocks it."""
    told = _reservations(answer, ("NAME", "TOPOLOGY", "SERIES"), wide=wide)
    return [told, members(answer, wide=wide), blockers(answer, wide=wide)]


def _reservations(answer: Answer, if_any: tuple[str, ...], *, wide: bool) -> Table:
    """Make the table; NAME and TOPOLOGY are in the wide form, or where `if_any` names them and one has a value.

    SERIES is there where one has a value.
    """

    def row(item: Document) -> dict[str, object]:
        start, end = _window(item, answer.now_ms, exact=wide)
        names = sorted(member["nodeName"] for member in item["members"])
        return {
            "ID": item["id"],
            "NAME": item.get("name"),
            "TENANT": item["tenantId"],
            "STATE": item["state"],
            "GPUS": gpus(item),
            "START": start,
            "END": end,
            "TOPOLOGY": item.get("topologyValue"),
            "SERIES": item.get("seriesId"),
            "REASON": _reason(item),
            "POOL": item["poolId"],
            "NODES": names,
        }

    headers = "ID NAME TENANT STATE GPUS START END TOPOLOGY SERIES REASON" + (" POOL NODES" if wide else "")
    found = [row(item) for item in items(answer)]
    valued = {name for name in if_any if any(cells[name] for cells in found)}
    left_out = ({"SERIES"} if wide else {"NAME", "TOPOLOGY", "SERIES"}) - valued
    shown = [header for header in headers.split() if header not in left_out]
    return table(" ".join(shown), ([cells[header] for header in shown] for cells in found))


def _window(item: Document, now_ms: int | None, *, exact: bool) -> tuple[str, str]:
    """Write start and end; `-` where the plan did not or cannot come true as it stands."""
    start_ms: int | None = item.get("start")
    end_ms: int | None = item.get("end")
    match item["state"]:
        case "pending" if start_ms is not None and now_ms is not None and start_ms < now_ms + SECOND_MS:
            start_ms = end_ms = None  # it starts when it can: later than it was asked for
        case "ended" if item.get("activated") is None:
            start_ms = end_ms = None  # it never ran
        case "ended":
            end_ms = item.get("ended", end_ms)  # what was promised may be later
        case _:
            pass
    return moment(start_ms, now_ms, exact=exact), moment(end_ms, now_ms, exact=exact)


def preview(answer: Answer, *, wide: bool) -> list[Table]:
    """What placing a request now would do."""
    item = answer.document
    start, end = (moment(item[name], answer.now_ms, exact=wide) for name in ("start", "end"))
    row = ("yes" if item["fits"] else "no", start, end, item.get("topologyValue"), _condition(item))
    return [
        table("FITS START END TOPOLOGY REASON", [row]),
        _quota(item),
        _planned(answer, wide=wide),
        blockers(answer, wide=wide),
        nearest(answer, wide=wide),
    ]


def _quota(item: Document) -> Table:
    """What it would add to what its tenant holds, in GPUs; nothing where the tenant has no limit."""
    limit = item.get("quotaLimitMilli")
    amounts = () if limit is None else (item.get("quotaMilli") or 0, item.get("quotaUsedMilli") or 0, limit)
    return table("COSTS USED QUOTA", [[f"{amount / MILLI_PER_GPU:g}" for amount in amounts]] if amounts else ())


def nearest(answer: Answer, *, wide: bool) -> Table:
    """What would fit instead, or as well, and what it would cost in quota, in GPUs."""
    rows = (
        (
            _near(one, answer, wide=wide),
            moment(one["start"], answer.now_ms, exact=wide),
            format_duration(one["end"] - one["start"]),
            one["gangSize"],
            " ".join(f"{key}={value}" for key, value in one["topology"].items()),
            f"{one['quotaMilli'] / MILLI_PER_GPU:g}",
        )
        for one in answer.document.get("nearest", ())
    )
    return table("NEAREST START FOR GANG TOPOLOGY GPUS", rows)


def _near(one: Document, answer: Answer, *, wide: bool) -> str:
    """Say in the words of the flags what is other than was asked."""
    match one["change"]:
        case "start":
            return f"starting {moment(one['start'], answer.now_ms, exact=wide)}"
        case "duration":
            since = " from now" if one["start"] == answer.document["asOf"] else ""
            return f"for {format_duration(one['end'] - one['start'])}{since}"
        case "gangSize":
            return f"a gang of {one['gangSize']}"
        case "topology" if answer.document["fits"]:
            return f"in {' '.join(one['topology'].values())}"  # it agrees on the same labels as the plan
        case "topology":
            return " ".join(
                ["with", *(f"--same {key}" for key in one["topology"])] if one["topology"] else ["without --same"]
            )
        case change:
            return str(change)  # of a newer coordinator


def _planned(answer: Answer, *, wide: bool) -> Table:
    """One row a member of a previewed gang, which has nothing yet but devices."""
    segments = _segments(answer)
    rows = ((one["nodeName"], _devices(one, wide=wide), *segments(one)) for one in _members(answer))
    return table("NODE DEVICES" + (" SEGMENT" if _has_segments(answer) else ""), rows)


def members(answer: Answer, *, wide: bool) -> Table:
    """One row a member: what its workload names as its device, and why it is not sound."""
    segments = _segments(answer)
    rows = (
        (
            one["nodeName"],
            one.get("bindState"),
            _devices(one, wide=wide),
            one.get("allocationId"),
            *segments(one),
            _late(one)
            or one.get("bindReason")
            or _older_grant(one, answer, exact=wide)
            or _risk_of(one["nodeName"], answer.document.get("atRisk", ())),
        )
        for one in _members(answer)
    )
    return table(f"NODE BINDING DEVICES ALLOCATION{' SEGMENT' if _has_segments(answer) else ''} REASON", rows)


def _segment(member: Document, answer: Answer) -> list[str]:
    """Return what a member agrees on with its segment alone, not with the whole gang."""
    whole = answer.document.get("topology", {})
    return [value for key, value in member.get("topology", {}).items() if key not in whole]


def _has_segments(answer: Answer) -> bool:
    return any(_segment(one, answer) for one in _members(answer))


def _segments(answer: Answer) -> Callable[[Document], list[str]]:
    """Return what tells a member's cells for its segment: none where no gang of the table has any."""
    return (lambda one: [" ".join(_segment(one, answer))]) if _has_segments(answer) else (lambda _one: [])


def _members(answer: Answer) -> list[Document]:
    found: list[Document] = answer.document.get("members", [])
    return sorted(found, key=lambda one: str(one["nodeName"]))


def _devices(member: Document, *, wide: bool) -> str | int:
    """Count a member's devices, or name them in the wide form."""
    return " ".join(member["devices"]) if wide else len(member["devices"])


def _late(member: Document) -> str | None:
    return f"release overdue: see muster nodes get {member['nodeName']}" if member.get("overdue") else None


def _risk_of(node_name: str, risks: Iterable[str]) -> str | None:
    """Return what a risk, worded `node: what is wrong`, says of one node."""
    told = [text for risk in risks for name, _, text in [risk.partition(": ")] if name == node_name]
    return f"at risk: {'; '.join(told)}" if told else None


def _older_grant(member: Document, answer: Answer, *, exact: bool) -> str | None:
    """Tell of a node that does not know yet how much longer the reservation lasts."""
    until_ms: int | None = member.get("grantedUntil")
    return None if until_ms is None else f"knows only of an end {moment(until_ms, answer.now_ms, exact=exact)}"


def blockers(answer: Answer, *, wide: bool) -> Table:
    """Why nodes could not take part, and until when that is known to last."""
    condition: Document = answer.document.get("condition") or {}
    rows = [
        (blocker["reason"], blocker["nodes"], moment(blocker.get("until"), answer.now_ms, exact=wide))
        for blocker in condition.get("blockers", ())
    ]
    return table("BLOCKED-BY NODES UNTIL", rows)


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


def cell(value: object) -> str:
    """Write a value; what is absent or empty as `-`."""
    if isinstance(value, list):
        return ",".join(str(part) for part in cast("list[object]", value)) or "-"
    return "-" if value in (None, "") else str(value)


def gpus(item: Document) -> str:
    """Write `8`, or `4x8` for a gang of four nodes."""
    each = sum(device["count"] for device in item["devices"])
    size = item.get("gang", {}).get("size", 1)
    return str(each) if size == 1 else f"{size}x{each}"


def _reason(item: Document) -> str | None:
    if item["state"] == "ended":
        return item.get("reason")
    if item.get("condition"):
        return _condition(item)
    told = [f"at risk: {', '.join(item['atRisk'])}"] if item.get("atRisk") else []
    if item["state"] in {"binding", "ending"}:
        done = {"binding": "bound", "ending": "released"}[item["state"]]
        waiting = sorted(member["nodeName"] for member in item["members"] if member.get("bindState") != done)
        told += [f"waiting for {', '.join(waiting)}"] if waiting else []
    return "; ".join(told)


def _condition(item: Document) -> str | None:
    condition: Document | None = item.get("condition")
    return f"{condition['reason']}: {condition['message']}" if condition else None
