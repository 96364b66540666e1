"""Commands by which an owner changes a reservation: extend and shrink."""

import click

from muster_cli import change_rows
from muster_cli.client import Document
from muster_cli.failures import Exit, Failure
from muster_cli.inputs import DURATION, INSTANT
from muster_cli.moments import moment
from muster_cli.naming import reservation_path
from muster_cli.session import Session, connected, say


@click.command
@click.argument("reservation")
@click.option("--by", type=DURATION, metavar="DURATION", help="So much longer: 30m, 12h, 3d. Each call adds it again.")
@click.option("--until", type=INSTANT, metavar="INSTANT", help="The new end: +2h from now, RFC 3339 or epoch ms.")
@click.option("--dry-run", is_flag=True, help="Only tell whether it could, and how long at most.")
@connected
def extend(session: Session, /, reservation: str, by: str | None, until: str | None, *, dry_run: bool) -> None:
    """Keep a reservation longer, on the GPUs that it has.

    It never moves and never gets shorter: give GPUs back early with release. A dry run ends with 4 where it does not
    fit, and without --by and --until tells the longest possible end.
    """
    if by is not None and until is not None:
        raise click.UsageError("Give only one of --by and --until.")
    if by is None and until is None and not dry_run:
        raise click.UsageError("Give one of --by and --until, or --dry-run to learn the longest possible end.")
    wanted = {"by": by, "until": until, "dryRun": dry_run or None}
    body = {name: value for name, value in wanted.items() if value is not None}
    answer = session.client.send("POST", f"{reservation_path(session, reservation)}/extend", body=body)
    session.show(answer, change_rows.extended)
    found: Document = answer.document["extension"]
    if not found["fits"]:
        advice = "Next: ask for at most the longest possible end, or reserve another window."
        raise Failure("It cannot last so long.", Exit.CONFLICT, (advice,))
    if not dry_run:
        say(f"{answer.document['id']} ends {moment(answer.document['end'], answer.now_ms, exact=False)}.")


@click.command
@click.argument("reservation")
@click.option("--to", type=click.IntRange(min=1), metavar="N", help="How many nodes stay; the worst leave.")
@click.option("--drop", metavar="NODE,...", help="Which nodes leave, by name or id.")
@click.option("--dry-run", is_flag=True, help="Only tell which would leave.")
@connected
def shrink(session: Session, /, reservation: str, to: int | None, drop: str | None, *, dry_run: bool) -> None:
    """Give some nodes of a gang back; the others go on.

    With --to, those leave first that are at risk, then silent ones, then those with holds or recent faults, then the
    last by name. A gang made of segments gives whole segments back. There is no way to let it grow again.
    """
    if (to is None) == (drop is None):
        raise click.UsageError("Give either --to or --drop.")
    names = [] if drop is None else [name for name in drop.split(",") if name]
    if drop is not None and not names:
        raise click.UsageError("Name at least one node with --drop.")
    body: dict[str, object] = {"to": to} if drop is None else {"drop": names}
    path = f"{reservation_path(session, reservation)}/shrink"
    answer = session.client.send("POST", path, body={**body, "dryRun": True} if dry_run else body)
    session.show(answer, change_rows.shrunk)
    say(_what_leaves(answer.document, dry_run=dry_run))


def _what_leaves(item: Document, *, dry_run: bool) -> str:
    names = ", ".join(item["dropped"])
    if dry_run:
        return f"Would give back {names}." if names else "Nothing would leave."
    size = item["gang"]["size"]
    nodes = f"{size} node{'' if size == 1 else 's'}"
    return f"{item['id']} has {nodes}; gave back {names}." if names else f"{item['id']} has {nodes}, as before."
