"""Commands about quotas: how much of a pool a tenant may hold at once."""

import re

import click

from muster_cli import account_rows
from muster_cli.groups import NounGroup
from muster_cli.session import Session, connected, say

PATH = "/v1/quotas"

_pool = click.option("--pool", help="Id or name; the pool named default when absent.")
_reason = click.option("--reason", help="Why; kept with the event.")
_GPUS = re.compile(r"\d{1,7}(\.\d{1,3})?")


@click.group(cls=NounGroup)
def quota() -> None:
    """Limit what tenants hold at once, in GPUs; alone, list the limits."""


@quota.command("list")
@click.option("--tenant", help="Of this tenant alone.")
@click.option("--pool", help="Id or name; all when absent.")
@connected
def list_(session: Session, /, tenant: str | None, pool: str | None) -> None:
    """List limits. USED counts what is placed, runs, or waits for a repair; tenants without a row have no limit."""
    session.show(session.client.get(PATH, {"tenantId": tenant, "poolId": pool}), account_rows.quotas, name="tenantId")


def _gpus(_ctx: click.Context, _param: click.Parameter, text: str) -> float:
    if not _GPUS.fullmatch(text):
        raise click.BadParameter(f"{text!r} is no number of GPUs such as 64 or 0.125")
    return float(text)


@quota.command("set")
@click.argument("tenant")
@click.argument("gpus", callback=_gpus)
@_pool
@_reason
@connected
def set_(session: Session, /, tenant: str, gpus: float, pool: str | None, reason: str | None) -> None:
    """Let a tenant hold at most so many GPUs at once: 64, or 0.125.

    What is held above the limit stays; nothing more is let in. Requests that have to wait for it are placed by
    themselves. Undo it with quota set to the former limit, or quota remove.
    """
    wanted = {"tenantId": tenant, "gpus": gpus, "poolId": pool, "reason": reason}
    body = {name: value for name, value in wanted.items() if value is not None}
    answer = session.client.send("PUT", PATH, body=body)
    session.show(answer, account_rows.quotas, name="tenantId")
    say(f"{tenant} may hold {answer.document['gpus']:g} GPUs at once in {answer.document['poolName']}.")


@quota.command
@click.argument("tenant")
@_pool
@_reason
@connected
def remove(session: Session, /, tenant: str, pool: str | None, reason: str | None) -> None:
    """Lift a tenant's limit."""
    session.client.send("DELETE", PATH, query={"tenantId": tenant, "poolId": pool, "reason": reason})
    say(f"{tenant} has no limit any more.")
