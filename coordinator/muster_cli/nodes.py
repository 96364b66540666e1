"""Commands of operators about nodes."""

import click

from muster_cli import node_rows
from muster_cli.client import Answer, part
from muster_cli.failures import Failure
from muster_cli.groups import NounGroup
from muster_cli.inputs import pair, pairs
from muster_cli.session import Session, confirm, confirmed, connected, say

PATH = "/v1/nodes"

_reason = click.option("--reason", help="Why; kept with the event.")
_names = click.argument("names", nargs=-1, required=True, metavar="NODE...")


@click.group(cls=NounGroup)
def nodes() -> None:
    """Look at nodes and decide about them; alone, list them."""


@nodes.command("list")
@click.option("--pool", help="Only in this pool.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many; all when absent.")
@connected
def list_(session: Session, /, pool: str | None, limit: int | None) -> None:
    """List nodes. FREE is what nobody has booked now."""
    session.show(session.client.pages(PATH, {"poolId": pool}, limit), node_rows.nodes, name="name")


@nodes.command
@click.argument("node")
@connected
def get(session: Session, /, node: str) -> None:
    """Show a node, by id or name, with its devices."""
    session.show(session.client.get(_path(node)), node_rows.node, name="name")


@nodes.command
@_names
@_reason
@connected
def cordon(session: Session, /, names: tuple[str, ...], reason: str | None) -> None:
    """Give nodes no new work; what is booked on them stays."""
    _order(session, names, "cordon", reason)


@nodes.command
@_names
@_reason
@connected
def uncordon(session: Session, /, names: tuple[str, ...], reason: str | None) -> None:
    """Let nodes take work again."""
    _order(session, names, "uncordon", reason)


@nodes.command
@_names
@_reason
@confirmed()
@connected
def drain(session: Session, /, names: tuple[str, ...], reason: str | None, *, yes: bool) -> None:
    """Empty nodes: no new work, and what is booked or protected leaves in its own time."""
    if len(names) > 1:
        confirm(f"Drain {len(names)} nodes?", yes=yes)
    _order(session, names, "drain", reason)


@nodes.command
@click.argument("node")
@_reason
@confirmed()
@connected
def fence(session: Session, /, node: str, reason: str | None, *, yes: bool) -> None:
    """Attest that a silent node no longer gives its GPUs to anybody.

    Its atoms are free at once. If the node is in fact alive, two tenants share GPUs: power it off first.
    """
    confirm(f"Is {node} powered off or cut from its GPUs?", yes=yes)
    _order(session, (node,), "fence", reason)


@nodes.command
@click.argument("node")
@click.argument("labels", nargs=-1, required=True, metavar="K=V|K-...")
@connected
def label(session: Session, /, node: str, labels: tuple[str, ...]) -> None:
    """Set a node's operator labels; `rack-` removes the label `rack`."""
    removed = {text[:-1]: None for text in labels if text.endswith("-") and "=" not in text}
    given = pairs(tuple(pair(text) for text in labels if text[:-1] not in removed), "LABELS")
    answer = session.client.send("PUT", f"{_path(node)}/labels", body={"labels": {**removed, **given}})
    _tell(session, [answer], f"Labelled {node}.")


@nodes.command
@click.argument("node")
@click.option("--shares", type=click.IntRange(0, 64), required=True, help="Of each GPU: 2 to 64, or 0 for whole GPUs.")
@click.option("--device", metavar="UUID", help="Only this GPU.")
@connected
def slots(session: Session, /, node: str, shares: int, device: str | None) -> None:
    """Cut a node's GPUs into shares that tenants use at the same time; 0 makes them whole again."""
    body = {"shares": shares} if device is None else {"shares": shares, "device": device}
    answer = session.client.send("PUT", f"{_path(node)}/slots", body=body)
    _tell(session, [answer], f"{node} offers {_offered(answer)}.")


@nodes.command
@click.argument("node")
@_reason
@click.option("--force", is_flag=True, help="Its machine is gone for good: repair what is booked on it elsewhere.")
@confirmed()
@connected
def remove(session: Session, /, node: str, reason: str | None, *, force: bool, yes: bool) -> None:
    """Take a node out for good. It must be silent and empty; what happened on it stays on record.

    With --force what is booked or bound on it is given up and repaired. If the machine is in fact alive, two tenants
    may share GPUs: power it off first.
    """
    question = f"Is the machine of {node} gone for good?" if force else f"Remove {node} for good?"
    confirm(question, yes=yes)
    session.client.send("DELETE", _path(node), query={"reason": reason, "force": "true" if force else None})
    say(f"Removed {node}.")


@nodes.command("clear-hold")
@click.argument("node")
@click.option("--device", metavar="UUID", help="Only holds of this device.")
@click.option("--cause", help="Only holds of this cause, such as xid.")
@confirmed()
@connected
def clear_hold(session: Session, /, node: str, device: str | None, cause: str | None, *, yes: bool) -> None:
    """Declare a node's devices sound again; without --device and --cause, all of them.

    Its agent ends the holds with its next report. What a reading still shows comes back.
    """
    if device is None and cause is None:
        confirm(f"Clear every hold of {node}?", yes=yes)
    answer = session.client.send("DELETE", f"{_path(node)}/holds", query={"device": device, "cause": cause})
    _tell(session, [answer], f"Told {node} that its holds are over.")


def _offered(answer: Answer) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(answer.document["offers"].items())) or "nothing"


def _path(node: str) -> str:
    return f"{PATH}/{part(node)}"


def _order(session: Session, names: tuple[str, ...], verb: str, reason: str | None) -> None:
    """Give each node an order; one that is refused does not keep the others, and what was done is told."""
    body = {} if reason is None else {"reason": reason}
    answers: dict[str, Answer] = {}
    failure: Failure | None = None
    for name in names:
        try:
            answers[name] = session.client.send("POST", f"{_path(name)}/{verb}", body=body)
        except Failure as refusal:
            refusal.show()
            failure = failure or refusal
    done = {"cordon": "Cordoned", "uncordon": "Uncordoned", "drain": "Draining", "fence": "Fenced"}[verb]
    if answers:
        _tell(session, list(answers.values()), f"{done} {', '.join(answers)}.")
    if failure is not None:
        click.get_current_context().exit(failure.exit_code)


def _tell(session: Session, answers: list[Answer], sentence: str) -> None:
    say(sentence)
    told = [answer for answer in answers if answer.document]
    if told:
        one = told[0] if len(told) == 1 else Answer({"items": [a.document for a in told]}, told[0].now_ms)
        session.show(one, node_rows.nodes, name="name")
