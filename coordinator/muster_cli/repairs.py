"""The command by which somebody asks for a repair."""

import click

from muster_cli import change_rows
from muster_cli.failures import Exit, Failure
from muster_cli.naming import reservation_path
from muster_cli.session import Session, connected, say


@click.command
@click.argument("reservation")
@click.option("--avoid", multiple=True, metavar="NODE", help="Move it off this node, sound or not. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Only tell who would take over.")
@connected
def repair(session: Session, /, reservation: str, avoid: tuple[str, ...], *, dry_run: bool) -> None:
    """Repair a reservation now, whatever the horizon; where nothing fits it stays as it is.

    A sound reservation is left alone. Of one that runs, only members are replaced that are lost or harmed. A dry run
    shows plan B, and ends with 4 where there is none.
    """
    wanted: dict[str, object] = {"avoid": list(avoid), "dryRun": dry_run}
    body = {name: value for name, value in wanted.items() if value}
    answer = session.client.send("POST", f"{reservation_path(session, reservation)}/repair", body=body)
    session.show(answer, change_rows.repaired)
    told = answer.document["repair"]
    if not told["fits"]:
        advice = "Next: free or add nodes, or let it wait: it is tried again by itself."
        raise Failure(f"No plan B: {told['message']}", Exit.CONFLICT, (advice,))
    say(f"{answer.document['id']}: {told['message']}.")
