"""Turns maintenance windows into tables. Pure, as `rows` is."""

from muster_cli.client import Answer, Document
from muster_cli.moments import moment
from muster_cli.rows import Table, items, table


def windows(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a window. FREE counts the nodes that are booked for it, of all its nodes."""

    def row(item: Document) -> list[object]:
        nodes: list[Document] = item["nodes"]
        cells: list[object] = [
            item.get("id") or "(dry run)",
            item["state"],
            f"{sum(node['booked'] for node in nodes)}/{len(nodes)}",
            moment(item["start"], answer.now_ms, exact=wide),
            moment(item.get("ended") or item["end"], answer.now_ms, exact=wide),
            item["reason"],
        ]
        return [*cells, item["poolId"], [node["nodeName"] for node in nodes]] if wide else cells

    headers = "ID STATE FREE START END REASON" + (" POOL NODES" if wide else "")
    return [table(headers, (row(item) for item in items(answer)))]


def window(answer: Answer, *, wide: bool) -> list[Table]:
    """One window with its nodes, and everybody who is in the way."""
    nodes: list[Document] = answer.document["nodes"]
    in_the_way = (
        (
            node["nodeName"],
            one["reservationId"],
            one["state"],
            moment(one["start"], answer.now_ms, exact=wide),
            moment(one["end"], answer.now_ms, exact=wide),
            f"{one['reason']}: {', '.join(one['movesTo'])}" if one.get("movesTo") else one["reason"],
        )
        for node in nodes
        for one in node.get("inTheWay", ())
    )
    return [
        *windows(answer, wide=wide),
        table("NODE BOOKED", ((node["nodeName"], "yes" if node["booked"] else "no") for node in nodes)),
        table("ON IN-THE-WAY STATE START END REASON", in_the_way),
    ]
