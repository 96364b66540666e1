"""Commands about join tokens: which hosts may join."""

import click

from muster_cli import access_rows
from muster_cli.client import part
from muster_cli.groups import NounGroup
from muster_cli.inputs import DURATION
from muster_cli.session import Session, connected, say

PATH = "/v1/join-tokens"


@click.group("join-tokens", cls=NounGroup)
def join_tokens() -> None:
    """Let hosts join, each by a token of its own; alone, list those that still let one in."""


@join_tokens.command("list")
@click.option("--all", "everything", is_flag=True, help="Those that were used or revoked, or have expired, too.")
@connected
def list_(session: Session, /, *, everything: bool) -> None:
    """List join tokens, never what their hosts show."""
    query = {"all": "true"} if everything else {}
    session.show(session.client.get(PATH, query), access_rows.join_tokens)


@join_tokens.command
@click.argument("node")
@click.option("--pool", help="Id or name; the pool named default when absent.")
@click.option("--for", "duration", type=DURATION, default="24h", show_default=True, help="How long it lets it in.")
@connected
def create(session: Session, /, node: str, pool: str | None, duration: str) -> None:
    """Let the host NODE join once: its agent shows the token as `join_token`, under that name.

    What is shown is told this once. A token that was made for the same host before, and not used, ends.
    """
    wanted = {"nodeName": node, "poolId": pool, "duration": duration}
    body = {name: value for name, value in wanted.items() if value is not None}
    answer = session.client.send("POST", PATH, body=body)
    say(f"{node} may join. Shown this once: {answer.document['token']}")
    session.show(answer, access_rows.join_tokens)


@join_tokens.command
@click.argument("token")
@click.option("--reason", help="Why; kept with the event and in the audit log.")
@connected
def revoke(session: Session, /, token: str, reason: str | None) -> None:
    """End a join token, by id, that nobody has used; make another one to undo it."""
    body = {} if reason is None else {"reason": reason}
    answer = session.client.send("POST", f"{PATH}/{part(token)}/revoke", body=body)
    say(f"{answer.document['nodeName']} may no longer join by it.")
    session.show(answer, access_rows.join_tokens)
