"""The command that looks whether the books are right."""

import click

from muster_cli import account_rows
from muster_cli.failures import Exit
from muster_cli.session import Session, connected, say


@click.command
@connected
def doctor(session: Session, /) -> None:
    """Look for rows that break what must always hold: bookings, gangs, bindings, quota, usage, events.

    Ends with 1 where there is any. Nothing is changed. A finding is a fault of Muster, or of hands in its database:
    report it with what `-o json` shows.
    """
    answer = session.client.get("/v1/doctor")
    found = answer.document
    if found["items"] or session.output == "json":
        session.show(answer, account_rows.findings, name="subject")
    if found["count"]:
        say(f"{found['count']} findings; {len(found['items'])} are shown.")
        click.get_current_context().exit(Exit.ERROR)
    say(f"Sound: {found['reservations']} reservations that have not ended, {found['nodes']} nodes, and all accounts.")
