"""The command of operators that asks what a loss of nodes would do."""

import click

from muster_cli.client import Answer, Document
from muster_cli.inputs import DURATION, INSTANT, pair
from muster_cli.moments import moment
from muster_cli.rows import Table, table
from muster_cli.session import Session, connected, say


@click.command
@click.option("--pool", help="Id or name; the pool named default when absent.")
@click.option(
    "--lose",
    type=pair,
    multiple=True,
    required=True,
    metavar="LABEL=VALUE",
    help="Nodes with that label; node=NAME for one. Repeatable.",
)
@click.option("--at", type=INSTANT, metavar="INSTANT", help="now, +2h, RFC 3339 or epoch ms; now when absent.")
@click.option("--for", "duration", type=DURATION, metavar="DURATION", help="For so long; for good when absent.")
@connected
def whatif(
    session: Session,
    /,
    pool: str | None,
    lose: tuple[tuple[str, str], ...],
    at: str | None,
    duration: str | None,
) -> None:
    """Tell what a loss of nodes would do to the bookings on them. Nothing is changed.

    Bookings that have not begun are repaired as a storm repairs them: soonest start, largest gang, oldest.

    muster whatif --lose rack=r7 --lose node=gpu-03 --at +2h --for 4h
    """
    wanted = {
        "poolId": pool,
        "lose": [{"key": key, "value": value} for key, value in lose],
        "at": at,
        "duration": duration,
    }
    body = {name: value for name, value in wanted.items() if value is not None}
    answer = session.client.send("POST", "/v1/capacity/whatif", body=body)
    if session.output == "name":
        for item in answer.document["items"]:
            click.echo(item["reservationId"])
        return
    if session.output == "json" or answer.document["items"]:
        session.show(answer, fates)
    say(_summary(answer.document))


def fates(answer: Answer, *, wide: bool) -> list[Table]:
    """One row a booking on lost nodes, in the order in which they would be repaired."""
    items: list[Document] = answer.document["items"]
    has_names = wide or any(item.get("name") for item in items)

    def row(item: Document) -> list[object]:
        start, end = (moment(item[name], answer.now_ms, exact=wide) for name in ("start", "end"))
        who: list[object] = [item["reservationId"], *([item.get("name")] if has_names else []), item["tenantId"]]
        return [*who, item["gangSize"], start, end, item["outcome"], item["lost"], item["nodes"], item["message"]]

    headers = f"ID {'NAME ' if has_names else ''}TENANT NODES START END OUTCOME LOSES THEN-ON REASON"
    return [table(headers, (row(item) for item in items))]


def _summary(document: Document) -> str:
    nodes = f"{len(document['lost'])} node{'' if len(document['lost']) == 1 else 's'}"
    counts = ", ".join(f"{count} {outcome}" for outcome, count in document["outcomes"].items()) or "none"
    others = f"Others in the pool: {document['untouched']}, untouched."
    return f"Without {nodes}, of the bookings there: {counts}. {others}"
