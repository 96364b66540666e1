"""Commands that look ahead in a pool's calendar."""

import click

from muster_cli import calendar_rows
from muster_cli.inputs import DURATION, INSTANT
from muster_cli.session import Session, connected

_pool = click.option("--pool", help="Id or name; the pool named default when absent.")
_from = click.option(
    "--from", "--start", "start", type=INSTANT, metavar="INSTANT", help="now, +2h, RFC 3339 or epoch ms; now if absent."
)
_to = click.option("--to", "--until", "until", type=INSTANT, metavar="INSTANT", help="End, instead of --for.")


@click.command
@_pool
@_from
@_to
@click.option("--for", "duration", type=DURATION, metavar="DURATION", help="How long: at most 7d; a day if absent.")
@click.option("--bucket", type=DURATION, metavar="DURATION", help="Length of a bucket; 1h for a day, else 30m.")
@connected
def timeline(
    session: Session,
    /,
    pool: str | None,
    start: str | None,
    until: str | None,
    duration: str | None,
    bucket: str | None,
) -> None:
    """Show how many GPUs are booked and free, up to a week ahead.

    BOOKED counts whole GPUs with any booking in the bucket, so FREE is what could be had for all of it.

    muster timeline --for 7d --bucket 30m
    """
    if until is None and duration is None:
        duration, bucket = "1d", bucket or "1h"
    query = _asked(pool, start, until, duration, bucket)
    session.show(session.client.get("/v1/capacity/timeline", query), calendar_rows.timeline, name="poolId")


@click.command
@_pool
@_from
@_to
@click.option("--for", "duration", type=DURATION, metavar="DURATION", help="How long: at most 120d; 28d if absent.")
@click.option("--bucket", type=DURATION, metavar="DURATION", help="Length of a bucket; chosen by the window if absent.")
@click.option("--same", metavar="LABEL", help="Node label on which gangs agree; fabric.domain if absent.")
@connected
def outlook(
    session: Session,
    /,
    pool: str | None,
    start: str | None,
    until: str | None,
    duration: str | None,
    bucket: str | None,
    same: str | None,
) -> None:
    """Show free GPUs and the largest gang far ahead.

    GANG counts nodes of one topology value that are wholly free for all of the bucket.

    muster outlook --for 12w --same rack
    """
    query = {**_asked(pool, start, until, duration, bucket), "topologyKey": same}
    session.show(session.client.get("/v1/capacity/outlook", query), calendar_rows.outlook, name="poolId")


def _asked(
    pool: str | None, start: str | None, until: str | None, duration: str | None, bucket: str | None
) -> dict[str, str | int | None]:
    """Return the query of a window.

    Raises:
        click.UsageError: Both ends are given.
    """
    if until is not None and duration is not None:
        raise click.UsageError("Give only one of --for and --to.")
    return {"poolId": pool, "start": start, "end": until, "duration": duration, "bucket": bucket}
