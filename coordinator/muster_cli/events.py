"""The command that shows what happened, and goes on showing it."""

from functools import partial
from itertools import count
from typing import Final

import click

from muster_cli import event_rows
from muster_cli.client import Client, Document, Event, Query
from muster_cli.event_rows import Names
from muster_cli.failures import Exit, Failure
from muster_cli.session import Session, connected, say, write_json_line
from muster_cli.terminal import printable

PATH = "/v1/events"
PAUSE_MAX_S: Final = 30.0  # between attempts to connect again
_PAGE: Final = 100  # events of one look for the newest
_SEQ_MAX: Final = 2**53  # of every count on the wire
_GROWTH: Final = 8  # of the distance between two looks: seven of them pass a million events
_NAMED: Final = 500  # nodes that one call names: the most that a page has
_WIDTHS: Final = (8, 24, 26, 32)  # columns of lines that come one by one: none can wait for the widest


@click.command
@click.option("--follow", "-f", is_flag=True, help="Go on until interrupted, over broken connections too.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Only after this number; --follow: from now on if absent.",
)
@click.option("--pool", help="Only of this pool.")
@click.option("--subject", metavar="ID", help="Only about this reservation, node, pool or receiver.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only of this type, as reservation.repaired, or of this kind, as node. ; may be repeated.",
)
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, without --follow.")
@connected
def events(
    session: Session,
    /,
    *,
    follow: bool,
    after: int | None,
    pool: str | None,
    subject: str | None,
    types: tuple[str, ...],
    limit: int | None,
) -> None:
    """Show events. With --follow and -o json: one document a line."""
    wanted: Query = {"poolId": pool, "subject": subject, "type": ",".join(types) or None}
    if follow and limit is not None:
        raise click.UsageError("--limit does not go with --follow.")
    if follow:
        _follow(session, wanted, after)
        return
    answer = session.client.get(PATH, {"after": after, **wanted, "limit": limit})
    session.show(answer, partial(event_rows.events, names=_names(session)))
    if answer.document.get("nextCursor") and answer.document["items"]:
        say(f"There are more: --after {answer.document['items'][-1]['seq']}")


def _follow(session: Session, wanted: Query, after: int | None) -> None:
    seen = str(_newest(session.client) if after is None else after)
    names = _names(session)
    connected_once = False
    failures = count(1)
    while True:
        try:
            for event in session.client.stream(PATH, wanted, seen):
                if event is None:
                    if not connected_once and session.output in {"table", "wide"}:
                        click.echo(_line(("SEQ", "AT", "TYPE", "SUBJECT", "DETAILS")))
                    connected_once = True
                else:
                    failures, seen = count(1), event.seq
                    _show(session, event, names)
        except Failure as failure:
            if failure.exit_code != Exit.UNREACHABLE or not connected_once:
                raise
        pause_s = min(2.0 ** next(failures), PAUSE_MAX_S)
        say(f"The stream ended after event {seen}; connecting again in {pause_s:.0f}s.")
        session.clock.sleep(pause_s)


def _newest(client: Client) -> int:
    """Return the number of the newest event, 0 before the first.

    Looks ever further ahead until nothing is there, then halves what is left: some twenty calls for a million events.
    """
    low, high, step = 0, _SEQ_MAX, 0
    while low < high:
        after = min(low + step, (low + high) // 2)
        page: list[Document] = client.get(PATH, {"after": after, "limit": _PAGE}).document["items"]
        if not page:
            high = after
            continue
        low = int(page[-1]["seq"])
        if len(page) < _PAGE:
            return low
        step = step * _GROWTH or _PAGE
    return low


def _names(session: Session) -> Names:
    """Return the nodes' names by id: of a page of them, and none where the coordinator does not tell."""
    if session.output not in {"table", "wide"}:
        return {}
    try:
        nodes = session.client.get("/v1/nodes", {"limit": _NAMED}).document["items"]
    except Failure:
        return {}  # ids do as well
    return {str(node["id"]): str(node["name"]) for node in nodes}


def _show(session: Session, event: Event, names: Names) -> None:
    match session.output:
        case "json":
            write_json_line(event.document)
        case "name":
            click.echo(event.document["id"])
        case "table" | "wide":
            click.echo(_line(event_rows.event_cells(event.document, names, None, exact=True)))


def _line(cells: tuple[object, ...]) -> str:
    padded = [str(cell).ljust(width) for cell, width in zip(cells, _WIDTHS, strict=False)]
    return printable("  ".join([*padded, *(str(cell) for cell in cells[len(_WIDTHS) :])]).rstrip())
