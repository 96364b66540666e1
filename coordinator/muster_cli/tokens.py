"""Commands about tokens: who may call."""

import click

from muster_cli import access_rows
from muster_cli.client import part
from muster_cli.groups import NounGroup
from muster_cli.inputs import DURATION
from muster_cli.session import Session, confirm, confirmed, connected, say

PATH = "/v1/tokens"
ROLES = ("operator", "tenant", "auditor", "read-only", "metrics")


@click.group(cls=NounGroup)
def tokens() -> None:
    """Give people and programs tokens; alone, list them.

    From the first one on, every call must show one, also on the coordinator's own machine: set MUSTER_TOKEN.
    """


@tokens.command("list")
@click.option("--all", "everything", is_flag=True, help="Those that have expired or were revoked, too.")
@connected
def list_(session: Session, /, *, everything: bool) -> None:
    """List tokens, never what their bearers show."""
    query = {"all": "true"} if everything else {}
    session.show(session.client.get(PATH, query), access_rows.tokens, name="name")


@tokens.command
@click.argument("name")
@click.option("--role", "roles", multiple=True, required=True, type=click.Choice(ROLES), help="May be repeated.")
@click.option("--tenant", envvar="MUSTER_TENANT", help="Confine it to one tenant; the role tenant needs it.")
@click.option("--for", "duration", type=DURATION, default="90d", show_default=True, help="How long it is good for.")
@connected
def create(session: Session, /, name: str, roles: tuple[str, ...], tenant: str | None, duration: str) -> None:
    """Make a token. What its bearer shows is told this once; what is kept is only good for checking it."""
    confined = {"tenantId": tenant} if tenant and set(roles) & {"tenant", "read-only"} else {}
    body = {"name": name, "roles": list(roles), "duration": duration, **confined}
    answer = session.client.send("POST", PATH, body=body)
    say(f"Made {name}. Shown this once: {answer.document['token']}")
    session.show(answer, access_rows.tokens, name="name")


@tokens.command
@click.argument("name")
@click.option("--reason", help="Why; kept with the event and in the audit log.")
@confirmed()
@connected
def revoke(session: Session, /, name: str, reason: str | None, *, yes: bool) -> None:
    """End a token, by name or id. The next call that shows it is refused; there is no way back but a new one."""
    confirm(f"Revoke the token {name}?", yes=yes)
    body = {} if reason is None else {"reason": reason}
    answer = session.client.send("POST", f"{PATH}/{part(name)}/revoke", body=body)
    say(f"Revoked {name}.")
    session.show(answer, access_rows.tokens, name="name")
