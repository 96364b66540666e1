"""What ends a command early, and the exit code that scripts branch on."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import click

from muster_cli.flags import flag_of, in_words
from muster_cli.terminal import printable
from muster_shared.errors import Code


class Exit(IntEnum):
    """Exit codes. Click itself ends with 2 on flags that it cannot read."""

    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4  # also: no capacity
    NOT_ALLOWED = 5
    UNREACHABLE = 6
    TIMED_OUT = 124  # as timeout(1) does
    INTERRUPTED = 130  # as a shell tells of Ctrl-C


_ADVICE: Final = {
    Code.INVALID_INPUT: (Exit.USAGE, "Correct what is named above; --help tells what each flag takes."),
    Code.UNAUTHENTICATED: (Exit.NOT_ALLOWED, "Set MUSTER_TOKEN to a token of this coordinator."),
    Code.FORBIDDEN: (Exit.NOT_ALLOWED, "Check --tenant and MUSTER_TOKEN, or ask an operator for the right."),
    Code.NOT_FOUND: (Exit.NOT_FOUND, "See what there is: muster list, muster nodes, muster pools."),
    Code.METHOD_NOT_ALLOWED: (Exit.ERROR, "Command and coordinator differ in version: compare muster version."),
    Code.CONFLICT: (Exit.CONFLICT, "Look at its present state with get, then decide again."),
    Code.QUOTA_EXCEEDED: (Exit.CONFLICT, "Ask for less, or ask an operator for a higher limit: muster quota."),
    Code.IDEMPOTENCY_MISMATCH: (Exit.CONFLICT, "Another request used this key: give another --key."),
    Code.TOO_LARGE: (Exit.USAGE, "Send less: fewer labels, shorter names."),
    Code.UNSUPPORTED_MEDIA_TYPE: (Exit.ERROR, "Command and coordinator differ in version: compare muster version."),
    Code.INTERNAL: (Exit.ERROR, "Give the request id to an operator: the coordinator's log has the story."),
    Code.UNAVAILABLE: (Exit.UNREACHABLE, "Try again in a moment."),
}

_NAMES_A_COMMAND: Final = "`muster "


class Failure(Exception):  # noqa: N818 - a refusal is no error of the program
    """Ends the command: a sentence, what may be done about it, and the exit code."""

    def __init__(self, message: str, exit_code: Exit, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.details = tuple(details)

    def show(self) -> None:
        """Write everything to standard error, one thing a line."""
        for line in (f"Error: {self.message}", *self.details):
            click.echo(printable(line), err=True)


def refused(code: Code, detail: str, errors: Sequence[tuple[str, str]], request_id: str | None) -> Failure:
    """Word a refusal of the coordinator: its code, each field that is wrong, what to do next, the request id.

    Args:
        code: What programs branch on.
        detail: The coordinator's sentence.
        errors: `(path, message)` of each wrong field.
        request_id: Under which the coordinator's log has the request.
    """
    exit_code, advice = _ADVICE[code]
    worded = {f"{path}: {message}": f"{flag_of(path)}: {in_words(message)}" for path, message in errors}
    told = worded.pop(detail, detail)
    fields = [] if code is Code.NOT_FOUND else [f"  {text}" for text in worded.values()]  # it names what is missing
    next_step = [] if code is Code.NOT_FOUND and _NAMES_A_COMMAND in detail else [f"Next: {advice}"]
    named = [f"Request id: {request_id}"] if request_id else []
    return Failure(f"{code}: {told}", exit_code, (*fields, *next_step, *named))


def unreachable(url: str, why: object) -> Failure:
    """Word that no coordinator answered."""
    advice = "Next: check --coordinator (or MUSTER_URL), and that the coordinator runs."
    return Failure(f"No coordinator at {url}: {why}", Exit.UNREACHABLE, (advice,))
