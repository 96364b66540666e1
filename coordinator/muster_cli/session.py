"""What every command that calls the coordinator shares: where it is, and in which form the answer is shown."""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import click

from muster_cli.client import Answer, Client, Document
from muster_cli.clock import Clock, SystemClock
from muster_cli.failures import Exit, Failure
from muster_cli.rows import Table

Output = Literal["table", "wide", "json", "name"]
OUTPUTS: tuple[Output, ...] = ("table", "wide", "json", "name")


class Draw(Protocol):
    """Makes tables of an answer, as the functions of `rows` do."""

    def __call__(self, answer: Answer, *, wide: bool) -> Sequence[Table]:
        """Return the tables; wide ones tell everything and give exact times."""
        ...


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a command."""

    client: Client
    output: Output
    clock: Clock

    def show(self, answer: Answer, draw: Draw, *, name: str = "id") -> None:
        """Write the answer to standard output in the form that was asked for.

        Args:
            answer: A document, or a page of them.
            draw: For people.
            name: The field that names a document in other commands.
        """
        match self.output:
            case "json":
                write_json(answer.document)
            case "name":
                for item in answer.document.get("items", [answer.document]):
                    click.echo(item[name])
            case "table" | "wide":
                tables = [table for table in draw(answer, wide=self.output == "wide") if table.rows]
                write_tables(tables) if tables else say("Nothing found.")


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its `Session` first, the flags that make one, and an end with the right exit code."""

    @click.option(
        "--coordinator",
        metavar="URL",
        envvar="MUSTER_URL",
        default="http://127.0.0.1:8470",
        show_default=True,
        show_envvar=True,
        help="Where the coordinator is; the token comes from MUSTER_TOKEN.",
    )
    @click.option(
        "-o", "--output", type=click.Choice(OUTPUTS), default="table", show_default=True, help="Form of output."
    )
    @functools.wraps(command)
    def with_session(*args: object, coordinator: str, output: Output, **kwargs: object) -> None:
        ctx = click.get_current_context()
        try:
            client = Client(coordinator, os.environ.get("MUSTER_TOKEN") or None)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        clock: Clock = ctx.obj or SystemClock()
        try:
            command(Session(client, output, clock), *args, **kwargs)
        except Failure as failure:
            failure.show()
            ctx.exit(failure.exit_code)
        except KeyboardInterrupt:
            ctx.exit(Exit.INTERRUPTED)

    return with_session


def write_json(document: Document) -> None:
    """Write a document as the API gave it, indented."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def write_json_line(document: Document) -> None:
    """Write a document of a stream: one line, so that a reader knows where it ends."""
    click.echo(json.dumps(document, ensure_ascii=False))


def write_tables(tables: Iterable[Table]) -> None:
    """Write tables to standard output, a blank line between them."""
    from muster_cli.drawing import drawn  # noqa: PLC0415 - costs more than all the rest, and json never needs it

    click.echo("\n\n".join(drawn(table) for table in tables))


def say(sentence: str) -> None:
    """Tell the person something that is no part of the answer."""
    click.echo(sentence, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that is hard to take back.

    Raises:
        click.UsageError: Nobody is there to ask, and --yes was not given.
        click.Abort: The answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Say so with --yes.")
    click.confirm(question, abort=True, err=True)


def confirmed() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the flag --yes."""
    return click.option("--yes", is_flag=True, help="Do not ask.")
