"""The command about the audit log: who has changed what, and who was refused."""

import click

from muster_cli import access_rows
from muster_cli.failures import Exit
from muster_cli.inputs import INSTANT
from muster_cli.session import Session, connected, write_json_line

PATH = "/v1/audit"


@click.command
@click.option("--verify", is_flag=True, help="Walk the whole chain; ends with 1 where it is broken.")
@click.option("--export", is_flag=True, help="Write every row as one line of JSON, the oldest first.")
@click.option("--actor", help="Such as user:ada or service:root.")
@click.option("--action", help="Such as compute:token:create, or compute:node: for all of a kind.")
@click.option("--object", "object_", help="The id or name that it was about.")
@click.option("--decision", type=click.Choice(["allow", "deny"]), help="Only these.")
@click.option("--since", type=INSTANT, help="From when on.")
@click.option("--limit", type=click.IntRange(min=1, max=500), default=100, show_default=True, help="At most so many.")
@click.option("--after", type=click.IntRange(min=0), metavar="SEQ", help="Rows after this one.")
@connected
def audit(
    session: Session,
    /,
    *,
    verify: bool,
    export: bool,
    object_: str | None,
    limit: int,
    after: int | None,
    **wanted: str | None,
) -> None:
    """Show who has changed what, from where, by which policy, and who was refused."""
    if verify:
        answer = session.client.get(f"{PATH}/verify")
        session.show(answer, access_rows.verified, name="head")
        if not answer.document["sound"]:
            click.get_current_context().exit(Exit.ERROR)
        return
    query = {**wanted, "object": object_, "cursor": after}
    answer = session.client.pages(PATH, query, None if export else limit)
    if export:
        for item in answer.document["items"]:
            write_json_line(item)
        return
    session.show(answer, access_rows.audit, name="seq")
