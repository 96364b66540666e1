"""Turns tokens, policies and rows of the audit log into rows. Pure, as `rows` is."""

from muster_cli.client import Answer, Document
from muster_cli.moments import moment
from muster_cli.rows import Table, items, table


def tokens(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a token."""
    headers = "NAME ROLES TENANT STATE EXPIRES USED" + (" ID CREATED BY" if wide else "")

    def row(item: Document) -> list[object]:
        times = [moment(item.get(key), answer.now_ms, exact=wide) for key in ("expires", "lastUsed")]
        cells: list[object] = [item["name"], " ".join(item["roles"]), item.get("tenantId"), item["state"], *times]
        more = [item["id"], moment(item["created"], answer.now_ms, exact=True), item["createdBy"]] if wide else []
        return [*cells, *more]

    return [table(headers, (row(item) for item in items(answer)))]


def join_tokens(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a join token."""

    def row(item: Document) -> list[object]:
        times = [moment(item.get(key), answer.now_ms, exact=wide) for key in ("created", "expires", "used")]
        return [item["id"], item["nodeName"], item["poolName"], item["state"], *times]

    return [table("ID NODE POOL STATE CREATED EXPIRES USED", (row(item) for item in items(answer)))]


def policies(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a policy; its text is shown by `muster policy show`."""
    headers = "NAME FROM VERSION CHANGED"

    def row(item: Document) -> list[object]:
        origin = "muster" if item["shipped"] else "operators"
        return [item["name"], origin, item.get("version"), moment(item.get("changed"), answer.now_ms, exact=wide)]

    return [table(headers, (row(item) for item in items(answer)))]


def decision(answer: Answer, *, wide: bool) -> list[Table]:
    """What the policies say to one question."""
    del wide
    item = answer.document
    context = " ".join(f"{key}={value}" for key, value in item["context"].items())
    row = ("yes" if item["allowed"] else "no", " ".join(item["policies"]), context, "; ".join(item["errors"]))
    return [table("ALLOWED POLICIES CONTEXT ERRORS", [row])]


def audit(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a call."""
    told = " SOURCE REQUEST CHANGED REASON" if wide else ""
    headers = f"SEQ WHEN ACTOR ACTION OBJECT DECISION OUTCOME POLICIES{told}"

    def row(item: Document) -> list[object]:
        when = moment(item["at"], answer.now_ms, exact=wide)
        cells: list[object] = [item["seq"], when, item["actor"], item["action"], item["object"], item["decision"]]
        more = [item["source"], item["requestId"], _changed(item), item.get("reason")] if wide else []
        return [*cells, item["outcome"], " ".join(item["policies"]), *more]

    return [table(headers, (row(item) for item in items(answer)))]


def verified(answer: Answer, *, wide: bool) -> list[Table]:
    """What a walk over the chain has found."""
    del wide
    item = answer.document
    row = ("yes" if item["sound"] else "no", item["rows"], item["pending"], item["head"], item.get("fault"))
    return [table("SOUND ROWS PENDING HEAD FAULT", [row])]


def _changed(item: Document) -> str:
    before = item["before"]
    return " ".join(f"{key}:{before.get(key, 0)}->{version}" for key, version in item["after"].items())
