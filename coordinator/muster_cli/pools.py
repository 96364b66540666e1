"""Commands about pools."""

import click

from muster_cli import rows
from muster_cli.client import part
from muster_cli.groups import NounGroup
from muster_cli.session import Session, connected, say

PATH = "/v1/pools"


@click.group(cls=NounGroup)
def pools() -> None:
    """Look at pools; alone, list them."""


@pools.command("list")
@connected
def list_(session: Session, /) -> None:
    """List pools, in whole GPUs."""
    session.show(session.client.pages(PATH, {}, None), rows.pools)


@pools.command
@click.argument("pool")
@connected
def get(session: Session, /, pool: str) -> None:
    """Show a pool with its fabrics and its policy."""
    session.show(session.client.get(f"{PATH}/{part(pool)}"), rows.pool)


@pools.command
@click.argument("name")
@connected
def create(session: Session, /, name: str) -> None:
    """Make a pool."""
    answer = session.client.send("POST", PATH, body={"name": name})
    say(f"Made pool {name}.")
    session.show(answer, rows.pools)
