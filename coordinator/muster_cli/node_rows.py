"""Turns what the coordinator tells about nodes into tables. Pure, as `rows` is."""

from collections import Counter

from muster_cli.client import Answer, Document
from muster_cli.moments import moment
from muster_cli.rows import Table, items, table
from muster_shared.time import format_instant

FABRIC_DOMAIN = "fabric.domain"


def nodes(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a node; in the wide form its holds are told one by one."""
    found = items(answer)
    has_upkeep = any(item.get("maintenance") for item in found)

    def row(item: Document) -> list[object]:
        holds = [_hold(hold, item, wide=wide) for hold in item["holds"]]
        counted = [f"{hold} x{count}" if count > 1 else hold for hold, count in Counter(holds).items()]
        report = moment(item.get("lastReport"), answer.now_ms, exact=wide)
        state = _node_state(item, answer.now_ms)
        cells: list[object] = [item["name"], state, _free(item), _fabric(item), ", ".join(counted), report]
        cells += [_upkeep(item, answer.now_ms)] if has_upkeep else []
        if wide:
            others = sorted((key, value) for key, value in item["labels"].items() if key != FABRIC_DOMAIN)
            cells += [item["id"], item["poolId"], item.get("agentVersion"), " ".join(f"{k}={v}" for k, v in others)]
        return cells

    headers = "NAME STATE FREE FABRIC HOLDS REPORTED" + (" MAINTENANCE" if has_upkeep else "")
    return [table(headers + (" ID POOL AGENT LABELS" if wide else ""), (row(item) for item in found))]


def node(answer: Answer, *, wide: bool) -> list[Table]:
    """One node with its devices, what holds them, and its labels."""
    item = answer.document
    gpus = [
        (gpu["uuid"], gpu["model"], f"{gpu['memoryMib'] // 1024}GiB", gpu.get("island", 0), gpu["pci"], _gpu(gpu, item))
        for gpu in item["gpus"]
    ]
    holds = [
        (
            _cause(hold, item),
            hold.get("device") or "the node",
            moment(hold["sinceMs"], answer.now_ms, exact=wide),
            hold["clearsBy"],
            hold.get("message"),
        )
        for hold in item["holds"]
    ]
    findings = [
        (
            finding["cause"] if finding.get("code") is None else f"{finding['cause']}:{finding['code']}",
            finding.get("device") or "the node",
            moment(finding["sinceMs"], answer.now_ms, exact=wide),
            finding["message"],
        )
        for finding in item.get("findings", [])
    ]
    overdue = [
        (
            late["allocationId"],
            late["reservationId"],
            moment(late["since"], answer.now_ms, exact=wide),
            f"see that nothing of it runs on the host, or power it off; then muster nodes fence {item['name']}",
        )
        for late in item.get("overdue", [])
    ]
    instances = [
        (one["uuid"], one["profile"], f"{one['memoryMib'] // 1024}GiB", gpu["uuid"])
        for gpu in item["gpus"]
        for one in gpu.get("mig", ())
    ]
    operators = item["operatorLabels"]
    labels = [
        (key, value, "operator" if key in operators else "agent") for key, value in sorted(item["labels"].items())
    ]
    return [
        *nodes(answer, wide=wide),
        table("OFFERS COUNT", sorted(item.get("offers", {}).items())),
        table("DEVICE MODEL MEMORY ISLAND PCI STATE", gpus),
        *([table("INSTANCE PROFILE MEMORY OF", instances)] if instances else []),
        table("HOLD ON SINCE CLEARS-BY MESSAGE", holds),
        *([table("RELEASE-OVERDUE RESERVATION SINCE NEXT", overdue)] if overdue else []),
        *([table("FINDING ON SINCE MESSAGE", findings)] if findings else []),
        table("LABEL VALUE SET-BY", labels),
    ]


def _free(item: Document) -> str:
    """Write `7/8`; where a node offers other things than whole GPUs, each of them: `6/6 gpu, 14/16 slot`."""
    offers: Document = item.get("offers", {})
    if set(offers) <= {"gpu"}:
        return f"{item['gpusFree']}/{item['gpusTotal']}"
    free: Document = item.get("free", {})
    return ", ".join(f"{free.get(kind, 0)}/{count} {kind}" for kind, count in sorted(offers.items()))


def _node_state(item: Document, now_ms: int | None) -> str:
    words = [] if item["intent"] == "schedulable" else ["drained" if item.get("drained") else item["intent"]]
    words += ["leased"] if item["leased"] else []
    words += [] if item["reachable"] else ["unreachable"]
    words += ["maintenance"] if _in_upkeep(item, now_ms) else []
    words += ["flapping"] if item.get("flapping") else []
    words += ["release-overdue"] if item.get("overdue") else []
    return ",".join(words) or "ready"


def _in_upkeep(item: Document, now_ms: int | None) -> bool:
    window: Document | None = item.get("maintenance")
    return window is not None and now_ms is not None and window["start"] <= now_ms


def _upkeep(item: Document, now_ms: int | None) -> str | None:
    """Say until when a node is in maintenance, or from when on it will be."""
    window: Document | None = item.get("maintenance")
    if window is None:
        return None
    if _in_upkeep(item, now_ms):
        return f"until {format_instant(window['end'])}"
    return f"from {format_instant(window['start'])}"


def _fabric(item: Document) -> str | None:
    reason = item.get("fabricReason")
    return item["labels"].get(FABRIC_DOMAIN) or (f"({reason})" if reason else None)


def _hold(hold: Document, item: Document, *, wide: bool) -> str:
    cause = _cause(hold, item)
    return f"{cause} on {hold['device']}" if wide and hold.get("device") else cause


def _cause(hold: Document, item: Document) -> str:
    """Write `xid:79`; of NVML the state that the agent reports, for its code says nothing to people."""
    cause = str(hold["cause"])
    detail: object = hold.get("code")
    if cause == "nvmlDown":
        monitoring: Document = item.get("monitoring") or {}
        detail = None if monitoring.get("nvml") == "ok" else monitoring.get("nvml")
    return cause if detail is None else f"{cause}:{detail}"


def _gpu(gpu: Document, item: Document) -> str:
    """Say whether a GPU is there, and what holds it: its own holds and those of the whole node."""
    if not gpu.get("seen", True):
        return "lost"
    holds = [hold for hold in item["holds"] if hold.get("device") in {None, gpu["uuid"]}]
    causes = dict.fromkeys(_cause(hold, item) for hold in holds)
    if causes:
        return f"held {','.join(causes)}"
    slots: Document = item.get("slots", {})
    shares = slots.get(gpu["uuid"], slots.get("*", 0))
    return "split" if gpu.get("migMode") else f"in {shares} shares" if shares else "present"
