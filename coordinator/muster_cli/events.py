"""The command that shows what happened, and goes on showing it."""

from itertools import count
from typing import Final

import click

from muster_cli import event_rows
from muster_cli.client import Event
from muster_cli.failures import Exit, Failure
from muster_cli.session import Session, connected, say, write_json_line
from muster_cli.terminal import printable

PATH = "/v1/events"
PAUSE_MAX_S: Final = 30.0  # between attempts to connect again
_WIDTHS: Final = (8, 24, 26, 32)  # columns of lines that come one by one: none can wait for the widest


@click.command
@click.option("--follow", "-f", is_flag=True, help="Go on until interrupted, over broken connections too.")
@click.option("--after", type=click.IntRange(min=0), metavar="SEQ", help="Only events after this number.")
@click.option("--pool", help="Only of this pool.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, without --follow.")
@connected
def events(session: Session, /, *, follow: bool, after: int | None, pool: str | None, limit: int | None) -> None:
    """Show events. With --follow and -o json: one document a line."""
    if follow and limit is not None:
        raise click.UsageError("--limit does not go with --follow.")
    if follow:
        _follow(session, pool, after)
        return
    answer = session.client.get(PATH, {"after": after, "poolId": pool, "limit": limit})
    session.show(answer, event_rows.events)
    if answer.document.get("nextCursor") and answer.document["items"]:
        say(f"There are more: --after {answer.document['items'][-1]['seq']}")


def _follow(session: Session, pool: str | None, after: int | None) -> None:
    seen = None if after is None else str(after)
    if session.output in {"table", "wide"}:
        click.echo(_line(("SEQ", "AT", "TYPE", "SUBJECT", "DETAILS")))
    connected_once = False
    failures = count(1)
    while True:
        try:
            for event in session.client.stream(PATH, {"poolId": pool}, seen):
                connected_once, failures, seen = True, count(1), event.seq
                _show(session, event)
        except Failure as failure:
            if failure.exit_code != Exit.UNREACHABLE or not connected_once:
                raise
        pause_s = min(2.0 ** next(failures), PAUSE_MAX_S)
        say(f"The stream ended after event {seen}; connecting again in {pause_s:.0f}s.")
        session.clock.sleep(pause_s)


def _show(session: Session, event: Event) -> None:
    match session.output:
        case "json":
            write_json_line(event.document)
        case "name":
            click.echo(event.document["id"])
        case "table" | "wide":
            click.echo(_line(event_rows.event_cells(event.document, None, exact=True)))


def _line(cells: tuple[object, ...]) -> str:
    padded = [str(cell).ljust(width) for cell, width in zip(cells, _WIDTHS, strict=False)]
    return printable("  ".join([*padded, *(str(cell) for cell in cells[len(_WIDTHS) :])]).rstrip())
