"""Commands of tenants: reserve, preview, get, list, cancel, release."""

from typing import Any

import click

from muster_cli import rows
from muster_cli.client import Answer
from muster_cli.failures import Failure
from muster_cli.fitting import misfit, pending_sentence
from muster_cli.inputs import DURATION, KEY
from muster_cli.naming import LIVE, PATH, reservation_path
from muster_cli.request import body_of, described
from muster_cli.session import Session, confirm, confirmed, connected, say
from muster_cli.waiting import STATES, wait_for
from muster_shared.time import parse_duration


@click.command
@described
@click.option("--key", type=KEY, metavar="KEY", help="Idempotency key: the same key and request make one reservation.")
@click.option(
    "--wait",
    type=click.Choice(STATES),
    is_flag=False,
    flag_value="active",
    help="Until active, or in that state.",
)
@click.option("--timeout", type=DURATION, metavar="DURATION", help="How long --wait waits; without it, for ever.")
@click.option("--dry-run", is_flag=True, help="Only tell what would happen, as preview does.")
@connected
def reserve(
    session: Session,
    /,
    key: str | None,
    wait: str | None,
    timeout: str | None,
    *,
    dry_run: bool,
    **flags: Any,  # noqa: ANN401 - the flags of `described`
) -> None:
    """Reserve GPUs, now or for later.

    Each of --gang nodes gives --gpus GPUs, and all of them agree on the label --same. What cannot be placed now
    stays pending and is tried again.

    muster reserve --tenant acme --gpus 8 --for 12h --start +2h
    """
    if timeout is not None and wait is None:
        raise click.UsageError("--timeout belongs to --wait.")
    body = body_of(flags)
    if dry_run:
        _show_preview(session, body)
        return
    answer = session.client.send("POST", PATH, body=body, key=key)
    failure = None
    if wait is not None:
        answer, failure = wait_for(session, answer, wait, None if timeout is None else parse_duration(timeout))
    session.show(answer, rows.reservation)
    if failure is not None:
        raise failure
    if answer.document["state"] == "pending":
        say(pending_sentence(answer.document))


@click.command
@described
@connected
def preview(session: Session, /, **flags: Any) -> None:  # noqa: ANN401 - the flags of `described`
    """Tell what reserving now would do. Ends with 4 where it does not fit."""
    _show_preview(session, body_of(flags))


@click.command
@click.argument("reservation")
@connected
def get(session: Session, /, reservation: str) -> None:
    """Show a reservation, given by id or name, with its members."""
    session.show(session.client.get(reservation_path(session, reservation)), rows.reservation)


@click.command("list")
@click.option("--tenant", envvar="MUSTER_TENANT", show_envvar=True, help="Only of this tenant.")
@click.option("--pool", help="Only in this pool.")
@click.option("--state", type=click.Choice(STATES), help="Only in this state.")
@click.option("--series", metavar="SERIES", help="Only occurrences of this series.")
@click.option("--name", metavar="NAME", help="Only those of this name.")
@click.option("--all", "everything", is_flag=True, help="Those that have ended too.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many; all when absent.")
@connected
def list_(
    session: Session,
    /,
    tenant: str | None,
    pool: str | None,
    state: str | None,
    series: str | None,
    name: str | None,
    limit: int | None,
    *,
    everything: bool,
) -> None:
    """List reservations that have not ended. REASON tells why one is not running."""
    if everything and state is not None:
        raise click.UsageError("Only one of --all and --state.")
    states = None if everything else state or LIVE
    query = {"tenantId": tenant, "poolId": pool, "state": states, "seriesId": series, "name": name}
    session.show(session.client.pages(PATH, query, limit), rows.reservations)


@click.command
@click.argument("reservations", nargs=-1, required=True)
@confirmed()
@connected
def cancel(session: Session, /, reservations: tuple[str, ...], *, yes: bool) -> None:
    """Cancel reservations: what is booked is freed, what runs is ended."""
    _end(session, reservations, "cancel", yes=yes)


@click.command
@click.argument("reservations", nargs=-1, required=True)
@confirmed()
@connected
def release(session: Session, /, reservations: tuple[str, ...], *, yes: bool) -> None:
    """Give running reservations back before their end."""
    _end(session, reservations, "release", yes=yes)


def _show_preview(session: Session, body: dict[str, object]) -> None:
    answer = session.client.send("POST", "/v1/capacity/preview", body=body)
    if session.output == "name":
        for member in answer.document.get("members", ()):
            click.echo(member["nodeName"])
    else:
        session.show(answer, rows.preview)
    if not answer.document["fits"]:
        raise misfit(answer.document)


def _end(session: Session, reservations: tuple[str, ...], verb: str, *, yes: bool) -> None:
    """End each reservation; one that is refused does not keep the others."""
    if len(reservations) > 1:
        confirm(f"{verb.capitalize()} {len(reservations)} reservations?", yes=yes)
    ended: list[Answer] = []
    failure: Failure | None = None
    for reservation in reservations:
        try:
            answer = session.client.send("POST", f"{reservation_path(session, reservation)}/{verb}")
        except Failure as refusal:
            refusal.show()
            failure = failure or refusal
            continue
        ended.append(answer)
        say(_what_happened(answer))
    if ended:
        one = ended[0] if len(reservations) == 1 else Answer({"items": [a.document for a in ended]}, ended[0].now_ms)
        session.show(one, rows.reservations)
    if failure is not None:
        click.get_current_context().exit(failure.exit_code)


def _what_happened(answer: Answer) -> str:
    item = answer.document
    match item["state"]:
        case "ended":
            return f"{item['id']} has ended: {item.get('reason', 'no reason given')}."
        case "ending":
            return f"{item['id']} is ending: its GPUs are free once every node has confirmed."
        case state:
            return f"{item['id']} is {state}."
