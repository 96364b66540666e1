"""Commands about policies: who may do what."""

from typing import IO

import click

from muster_cli import access_rows
from muster_cli.client import part
from muster_cli.failures import Exit
from muster_cli.groups import NounGroup
from muster_cli.inputs import DURATION, INSTANT
from muster_cli.session import Session, confirm, confirmed, connected, say
from muster_cli.tokens import ROLES

PATH = "/v1/policies"

_text = click.argument("file", type=click.File())


@click.group(cls=NounGroup)
def policy() -> None:
    """Say in Cedar's language who may do what; alone, list the policies.

    Whatever one forbids is forbidden, and what none permits, too. A draft shows itself as context.gpuCount (whole GPUs
    of all nodes), gangSize, gpuEquivalentMilli (MIG instances and shares included), duration and start (ms), binding
    and spot; the group Action::"book" is every action that takes more of the calendar.
    """


@policy.command("list")
@connected
def list_(session: Session, /) -> None:
    """List policies: those that operators have added, then those that come with the program."""
    session.show(session.client.get(PATH), access_rows.policies, name="name")


@policy.command
@click.argument("name")
@connected
def show(session: Session, /, name: str) -> None:
    """Show a policy's text."""
    answer = session.client.get(f"{PATH}/{part(name)}")
    if session.output in {"table", "wide"}:
        click.echo(answer.document["text"].rstrip("\n"))
        return
    session.show(answer, access_rows.policies, name="name")


@policy.command
@click.argument("name")
@_text
@connected
def add(session: Session, /, name: str, file: IO[str]) -> None:
    """Add the policy in FILE (- for standard input), or give the one of that name another text.

    It holds from the next call on. Try it first: muster policy test ACTION --file FILE.
    """
    answer = session.client.send("POST", PATH, body={"name": name, "text": file.read()})
    say(f"Added {name}. To take it back: muster policy remove {name}")
    session.show(answer, access_rows.policies, name="name")


@policy.command
@click.argument("name")
@click.option("--reason", help="Why; kept with the event, which keeps the text, too.")
@confirmed()
@connected
def remove(session: Session, /, name: str, reason: str | None, *, yes: bool) -> None:
    """Take a policy back."""
    confirm(f"Remove the policy {name}?", yes=yes)
    session.client.send("DELETE", f"{PATH}/{part(name)}", query={"reason": reason})
    say(f"Removed {name}.")


@policy.command
@click.argument("action")
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES), help="Of whoever asks; may be repeated.")
@click.option("--tenant", help="Of whoever asks.")
@click.option("--owner", help="The tenant whose thing it is; the asker's own when absent.")
@click.option("--pool", help="By name.")
@click.option("--gpus", type=click.IntRange(min=0, max=64), default=0, help="Whole GPUs of each node.")
@click.option("--gang", type=click.IntRange(min=1, max=4096), default=1, help="Nodes.")
@click.option("--for", "duration", type=DURATION, default="1h", show_default=True, help="How long.")
@click.option("--start", type=INSTANT, default="now", show_default=True, help="From when on.")
@click.option("--file", type=click.File(), help="A policy to try beside those that there are.")
@connected
def test(session: Session, /, action: str, roles: tuple[str, ...], file: IO[str] | None, **asked: object) -> None:
    """Ask what the policies say to ACTION, such as compute:reservation:create. Ends with 5 where they deny it."""
    named = {"tenant": "tenantId"}
    body = {named.get(key, key): value for key, value in asked.items() if value is not None}
    body |= {"action": action, "roles": list(roles)} | ({} if file is None else {"text": file.read()})
    answer = session.client.send("POST", f"{PATH}/test", body=body)
    say(f"{answer.document['explanation']}.")
    session.show(answer, access_rows.decision, name="allowed")
    if not answer.document["allowed"]:
        click.get_current_context().exit(Exit.NOT_ALLOWED)
