"""The command about usage: what was promised, what was delivered, and what a billing system takes."""

import csv
import sys
from typing import Final

import click

from muster_cli import account_rows
from muster_cli.client import Document
from muster_cli.inputs import INSTANT
from muster_cli.session import Session, connected

PATH: Final = "/v1/usage"
_COLUMNS: Final = (
    *("allocationId", "reservationId", "name", "tenantId", "poolId", "budget", "kind", "nodeId"),
    *("milli", "start", "end", "milliMs", "final"),
)
_FORMULA: Final = ("=", "+", "-", "@", "\t")  # what spreadsheets would run


@click.command
@click.option("--tenant", help="Of this tenant alone.")
@click.option("--pool", help="Id or name; all when absent.")
@click.option("--from", "start", type=INSTANT, help="RFC 3339, epoch ms or -7d; 30 days before the end when absent.")
@click.option("--to", "end", type=INSTANT, help="The same; now when absent.")
@click.option("--records", is_flag=True, help="One row for each node of a reservation, instead of sums.")
@click.option("--csv", "as_csv", is_flag=True, help="The records as CSV, amounts in milli-GPU ms, for billing.")
@connected
def usage(
    session: Session,
    /,
    *,
    tenant: str | None,
    pool: str | None,
    start: str | None,
    end: str | None,
    records: bool,
    as_csv: bool,
) -> None:
    """Show GPU-hours promised and delivered, and how late work began; `-o wide` shows each reservation.

    A reservation is billed from when all of its nodes were bound until each node has confirmed its release. Months, or
    any two times that touch, add up exactly.
    """
    query = {"tenantId": tenant, "poolId": pool, "from": start, "to": end}
    if not records and not as_csv:
        session.show(session.client.get(PATH, query), account_rows.usage, name="reservationId")
        return
    answer = session.client.get(f"{PATH}/records", query)
    if not as_csv:
        session.show(answer, account_rows.records, name="allocationId")
        return
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(_COLUMNS)
    rows.writerows([_cell(item, column) for column in _COLUMNS] for item in answer.document["items"])


def _cell(item: Document, column: str) -> object:
    value = item.get(column, "")
    if isinstance(value, bool):
        return "true" if value else "false"
    # A tenant chose the name: no spreadsheet shall run it.
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
