"""Commands about receivers of webhooks: who outside is told of events."""

import click

from muster_cli import webhook_rows
from muster_cli.client import Answer, part
from muster_cli.failures import Exit
from muster_cli.groups import NounGroup
from muster_cli.session import Session, confirm, confirmed, connected, say

PATH = "/v1/webhooks"

_name = click.argument("name")
_reason = click.option("--reason", help="Why; kept with the event.")


@click.group(cls=NounGroup)
def webhooks() -> None:
    """Tell others of events, signed and in order; alone, list who is told."""


@webhooks.command("list")
@connected
def list_(session: Session, /) -> None:
    """List receivers. WAITING events are on their way, DEAD ones were given up after a day."""
    session.show(session.client.get(PATH), webhook_rows.webhooks, name="name")


@webhooks.command
@_name
@connected
def get(session: Session, /, name: str) -> None:
    """Show a receiver, by name or id."""
    session.show(session.client.get(_path(name)), webhook_rows.webhooks, name="name")


@webhooks.command
@_name
@click.argument("url")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only events of this type, as reservation.repaired, or of this kind, as node. ; may be repeated.",
)
@connected
def add(session: Session, /, name: str, url: str, types: tuple[str, ...]) -> None:
    """Tell a receiver at URL of every event from now on, or of some types.

    Its secret is shown this once: the receiver checks signatures with it, as Standard Webhooks has them.
    """
    answer = session.client.send("POST", PATH, body={"name": name, "url": url, "types": list(types)})
    say(f"Added {name}. Its secret, shown this once: {answer.document['secret']}")
    session.show(answer, webhook_rows.webhooks, name="name")


@webhooks.command
@_name
@connected
def test(session: Session, /, name: str) -> None:
    """Send a ping right now; ends with 1 where the receiver does not take it."""
    answer = session.client.send("POST", f"{_path(name)}/test")
    session.show(answer, webhook_rows.test, name="eventId")
    if not answer.document["delivered"]:
        click.get_current_context().exit(Exit.ERROR)


@webhooks.command
@_name
@click.option("--finish", is_flag=True, help="The receiver knows the new secret: sign with that alone.")
@connected
def rotate(session: Session, /, name: str, *, finish: bool) -> None:
    """Change a receiver's secret. Both sign until --finish, so that no event is refused meanwhile."""
    if finish:
        _tell(session, session.client.send("DELETE", f"{_path(name)}/former-secret"), f"{name} has one secret.")
        return
    answer = session.client.send("POST", f"{_path(name)}/rotate")
    say(f"The new secret of {name}, shown this once: {answer.document['secret']}")
    say(f"Give it to the receiver, then: muster webhooks rotate {name} --finish")
    session.show(answer, webhook_rows.webhooks, name="name")


@webhooks.command
@_name
@_reason
@connected
def disable(session: Session, /, name: str, reason: str | None) -> None:
    """Stop sending to a receiver. What waits is kept; what happens meanwhile is not queued."""
    _tell(session, session.client.send("POST", f"{_path(name)}/disable", body=_because(reason)), f"Disabled {name}.")


@webhooks.command
@_name
@_reason
@connected
def enable(session: Session, /, name: str, reason: str | None) -> None:
    """Send to a receiver again. What it missed: muster webhooks replay NAME --after SEQ."""
    _tell(session, session.client.send("POST", f"{_path(name)}/enable", body=_because(reason)), f"Enabled {name}.")


@webhooks.command
@_name
@_reason
@confirmed()
@connected
def remove(session: Session, /, name: str, reason: str | None, *, yes: bool) -> None:
    """Forget a receiver, and what was on its way to it. The events stay in the log."""
    confirm(f"Remove the receiver {name}?", yes=yes)
    session.client.send("DELETE", _path(name), query={"reason": reason})
    say(f"Removed {name}.")


@webhooks.command
@_name
@click.option("--state", type=click.Choice(["waiting", "delivered", "dead"]), help="Only these.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@connected
def deliveries(session: Session, /, name: str, state: str | None, limit: int) -> None:
    """List what was or is to be sent to a receiver, the newest event first."""
    answer = session.client.get(f"{_path(name)}/deliveries", {"state": state, "limit": limit})
    session.show(answer, webhook_rows.deliveries, name="eventId")


@webhooks.command
@_name
@click.option("--after", type=click.IntRange(min=0), metavar="SEQ", help="Every wanted event after this number.")
@click.option("--until", type=click.IntRange(min=0), metavar="SEQ", help="With --after: up to this number.")
@connected
def replay(session: Session, /, name: str, after: int | None, until: int | None) -> None:
    """Send again what was given up; with --after, every event from there on, under the same ids."""
    asked = {"after": after, "until": until}
    body = {key: value for key, value in asked.items() if value is not None}
    answer = session.client.send("POST", f"{_path(name)}/replay", body=body)
    say(f"Queued {answer.document['queued']} events for {name}.")
    session.show(session.client.get(_path(name)), webhook_rows.webhooks, name="name")


def _because(reason: str | None) -> dict[str, str]:
    return {} if reason is None else {"reason": reason}


def _path(name: str) -> str:
    return f"{PATH}/{part(name)}"


def _tell(session: Session, answer: Answer, sentence: str) -> None:
    say(sentence)
    session.show(answer, webhook_rows.webhooks, name="name")
