"""Commands of operators about maintenance windows."""

from collections.abc import Mapping
from typing import Any

import click

from muster_cli import maintenance_rows
from muster_cli.client import Answer, Document, part
from muster_cli.groups import NounGroup
from muster_cli.inputs import DURATION, INSTANT, pair, pairs
from muster_cli.session import Session, confirm, confirmed, connected, say

PATH = "/v1/maintenance"


@click.group(cls=NounGroup)
def maintenance() -> None:
    """Take nodes out of the calendar for a while; alone, list the windows."""


@maintenance.command
@click.option(
    "--node", "nodes", multiple=True, metavar="NODE,...", help="Ids or names, with commas between them. Repeatable."
)
@click.option("--selector", type=pair, multiple=True, metavar="K=V", help="Label of the nodes instead. Repeatable.")
@click.option("--pool", help="Of the --selector; the pool named default when absent.")
@click.option("--start", type=INSTANT, metavar="INSTANT", help="now, +2h, RFC 3339 or epoch ms; now when absent.")
@click.option("--for", "duration", type=DURATION, metavar="DURATION", help="How long: 90m, 4h, 2d, PT12H.")
@click.option("--until", type=INSTANT, metavar="INSTANT", help="End, instead of --for.")
@click.option("--reason", required=True, help="Why, for whoever finds their booking moved.")
@click.option("--dry-run", is_flag=True, help="Only tell who would be moved, and who would stay.")
@connected
def create(session: Session, /, *, dry_run: bool, **flags: Any) -> None:  # noqa: ANN401 - the flags above
    """Keep nodes free for a while.

    Bookings in the window are moved where something else fits. What runs is never thrown out: its node is booked for
    maintenance once it has ended.

    muster maintenance create --selector rack=r7 --start +2d --for 4h --reason "new fans"
    """
    body = _body(flags)
    if dry_run:
        _show_preview(session, session.client.send("POST", f"{PATH}/preview", body=body))
        return
    answer = session.client.send("POST", PATH, body=body)
    say(_sentence(answer.document))
    session.show(answer, maintenance_rows.window)


@maintenance.command("list")
@click.option("--pool", help="Only in this pool.")
@click.option("--all", "everything", is_flag=True, help="Those that are over, too.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many; all when absent.")
@connected
def list_(session: Session, /, pool: str | None, limit: int | None, *, everything: bool) -> None:
    """List windows that are not over."""
    query = {"poolId": pool, "all": "true" if everything else None}
    session.show(session.client.pages(PATH, query, limit), maintenance_rows.windows)


@maintenance.command
@click.argument("window")
@connected
def get(session: Session, /, window: str) -> None:
    """Show a window with its nodes, and who is in the way."""
    session.show(session.client.get(f"{PATH}/{part(window)}"), maintenance_rows.window)


@maintenance.command
@click.argument("window")
@connected
def cancel(session: Session, /, window: str) -> None:
    """Take back a window that has not begun."""
    answer = session.client.send("POST", f"{PATH}/{part(window)}/cancel")
    say(f"Cancelled {window}.")
    session.show(answer, maintenance_rows.windows)


@maintenance.command
@click.argument("window")
@confirmed()
@connected
def end(session: Session, /, window: str, *, yes: bool) -> None:
    """Give the nodes back before the window is over: tenants may have them at once."""
    confirm(f"Is everything on the nodes of {window} mended?", yes=yes)
    answer = session.client.send("POST", f"{PATH}/{part(window)}/end")
    say(f"Ended {window}.")
    session.show(answer, maintenance_rows.windows)


def _body(flags: Mapping[str, Any]) -> dict[str, object]:
    """Return the request's document.

    Raises:
        click.UsageError: Not exactly one of --node and --selector, or of --for and --until.
    """
    names = [name for text in flags["nodes"] for name in text.split(",") if name]
    if bool(names) == bool(flags["selector"]):
        raise click.UsageError("Give either --node or --selector.")
    if (flags["duration"] is None) == (flags["until"] is None):
        raise click.UsageError("Give one of --for and --until.")
    fields = {
        "poolId": flags["pool"],
        "nodes": names or None,
        "nodeSelector": pairs(flags["selector"], "--selector") or None,
        "start": flags["start"],
        "duration": flags["duration"],
        "end": flags["until"],
        "reason": flags["reason"],
    }
    return {name: value for name, value in fields.items() if value is not None}


def _show_preview(session: Session, answer: Answer) -> None:
    if session.output == "name":
        for node in answer.document["nodes"]:
            click.echo(node["nodeName"])
    else:
        session.show(answer, maintenance_rows.window)


def _sentence(item: Document) -> str:
    """Say how far the nodes are free."""
    left = [node["nodeName"] for node in item["nodes"] if not node["booked"]]
    if not left:
        return f"Declared {item['id']}: every node is free for it."
    return f"Declared {item['id']}: {', '.join(left)} will be free for it once nobody is in the way; see below."
