"""Commands about series: reservations that come again by a rule."""

from typing import Any

import click

from muster_cli import series_rows
from muster_cli.client import Answer, part
from muster_cli.groups import NounGroup
from muster_cli.inputs import CLOCK, DAY, DAY_OR_INSTANT, DURATION, INSTANT, KEY
from muster_cli.request import described_gang, gang_of, present
from muster_cli.session import Session, confirm, confirmed, connected, say

PATH = "/v1/series"

_series = click.argument("series")
_occurrence = click.argument("occurrence", type=DAY_OR_INSTANT)


@click.group(cls=NounGroup)
def series() -> None:
    """Reserve again and again, by a rule; alone, list series.

    OCCURRENCE is when the rule has it begin, as `muster series get` shows it, or its day: 2027-01-18.
    """


@series.command
@described_gang
@click.option("--rule", required=True, metavar="RRULE", help='RFC 5545, such as "FREQ=WEEKLY;BYDAY=MO".')
@click.option("--at", type=CLOCK, required=True, metavar="HH:MM", help="Time of day at which an occurrence begins.")
@click.option("--zone", default="UTC", show_default=True, help="Whose clocks these are, such as Europe/Berlin.")
@click.option(
    "--for", "duration", type=DURATION, required=True, metavar="DURATION", help="How long: 90s, 30m, 12h, 3d, PT12H."
)
@click.option("--first-day", type=DAY, metavar="DAY", help="Day from which the rule counts; today when absent.")
@click.option(
    "--latest-start-after",
    type=DURATION,
    metavar="DURATION",
    help="Give an occurrence up that could not start so long after its time.",
)
@click.option("--key", type=KEY, metavar="KEY", help="Idempotency key: the same key and request make one series.")
@connected
def create(session: Session, /, key: str | None, **flags: Any) -> None:  # noqa: ANN401 - the flags above
    """Reserve GPUs again and again.

    Each occurrence is a reservation of its own, made weeks ahead. One that does not fit is pending; the others stand.
    The time of day stays the same when clocks change. COUNT and UNTIL in the rule end the series.

    muster series create --tenant acme --gpus 8 --rule "FREQ=WEEKLY;BYDAY=MO" --at 08:00 --zone Europe/Berlin --for 12h
    """
    times = {name: flags[name] for name in ("rule", "at", "zone", "duration")}
    more = {"firstDay": flags["first_day"], "latestStartAfter": flags["latest_start_after"]}
    answer = session.client.send("POST", PATH, body={**gang_of(flags), **times, **present(more)}, key=key)
    session.show(answer, series_rows.one_series)
    waiting = sum(one["state"] == "pending" for one in answer.document["occurrences"])
    if waiting:
        say(f"{waiting} of the occurrences above cannot be placed now: they are tried again; REASON tells why.")


@series.command("list")
@click.option("--tenant", envvar="MUSTER_TENANT", show_envvar=True, help="Only of this tenant.")
@click.option("--pool", help="Only in this pool.")
@click.option("--all", "everything", is_flag=True, help="Those that have ended too.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many; all when absent.")
@connected
def list_(session: Session, /, tenant: str | None, pool: str | None, limit: int | None, *, everything: bool) -> None:
    """List series that have not ended."""
    query = {"tenantId": tenant, "poolId": pool, "state": None if everything else "active"}
    session.show(session.client.pages(PATH, query, limit), series_rows.all_series)


@series.command
@_series
@click.option("--next", "ahead", type=click.IntRange(1, 500), help="How many occurrences to show; 10 when absent.")
@connected
def get(session: Session, /, series: str, ahead: int | None) -> None:
    """Show a series with its next occurrences."""
    session.show(session.client.get(_path(series), {"occurrences": ahead}), series_rows.one_series)


@series.command
@_series
@_occurrence
@connected
def skip(session: Session, /, series: str, occurrence: str) -> None:
    """Leave one occurrence out; what is booked for it is freed. `unskip` takes it back."""
    answer = session.client.send("POST", f"{_path(series)}/skip", body={"occurrence": occurrence})
    _tell(session, answer, f"Skipped {occurrence}.")


@series.command
@_series
@_occurrence
@connected
def unskip(session: Session, /, series: str, occurrence: str) -> None:
    """Take back that an occurrence was skipped: it is reserved again, where it fits."""
    answer = session.client.send("POST", f"{_path(series)}/unskip", body={"occurrence": occurrence})
    _tell(session, answer, f"Took {occurrence} back.")


@series.command
@_series
@_occurrence
@click.option("--start", type=INSTANT, metavar="INSTANT", help="When it begins: now, +2h, RFC 3339 or epoch ms.")
@click.option("--for", "duration", type=DURATION, metavar="DURATION", help="How long it is.")
@connected
def change(session: Session, /, series: str, occurrence: str, start: str | None, duration: str | None) -> None:
    """Give one occurrence another start, another duration, or both. The others stay as they are.

    One that is placed and does not fit in the other window stays where it is.
    """
    if start is None and duration is None:
        raise click.UsageError("Give --start, --for, or both.")
    body = {"occurrence": occurrence, **present({"start": start, "duration": duration})}
    _tell(session, session.client.send("POST", f"{_path(series)}/change", body=body), f"Changed {occurrence}.")


@series.command
@_series
@click.option("--from", "since", type=DAY_OR_INSTANT, metavar="WHEN", help="Day or instant; now when absent.")
@confirmed()
@connected
def cancel(session: Session, /, series: str, since: str | None, *, yes: bool) -> None:
    """Cancel every occurrence that has not begun, or all from an instant on. What has begun goes on."""
    confirm(f"Cancel what is ahead of {series}{f' from {since} on' if since else ''}?", yes=yes)
    answer = session.client.send("POST", f"{_path(series)}/cancel", body=present({"from": since}))
    until = answer.document["state"] == "active"
    _tell(session, answer, f"{series} goes on until then." if until else f"{series} has ended.")


def _path(series: str) -> str:
    return f"{PATH}/{part(series)}"


def _tell(session: Session, answer: Answer, sentence: str) -> None:
    say(sentence)
    session.show(answer, series_rows.one_series)
