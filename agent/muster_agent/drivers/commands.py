"""Programs run aside: an argument list and no shell, a time limit, and only so much of their output kept."""

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import IO, Final

OUTPUT_BYTES_MAX: Final = 4_096  # agent facts, 4.2: of a program that talks much, the end says why it failed
_CHUNK_BYTES: Final = 65_536  # what a pipe holds
_LAST_WORDS_S: Final = 1.0  # for what is still in the pipe of a program that has ended


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended."""

    status: int | None  # None: it was killed at its time limit; negative: by that signal
    output: str  # both streams, the last of it

    @property
    def trouble(self) -> str | None:
        """Say what went wrong in one line; None when nothing did."""
        if self.status == 0:
            return None
        how = "ran into its time limit" if self.status is None else f"ended with status {self.status}"
        said = " ".join(self.output.split())
        return f"{how}: {said}" if said else how


def run(arguments: Sequence[str], limit_ms: int, variables: Mapping[str, str] | None = None) -> Ended:
    """Run a program to its end, and with it whatever it leaves in its process group.

    Args:
        arguments: The program and its arguments, handed over as they are.
        limit_ms: Killed after so long.
        variables: Added to the environment.

    Raises:
        OSError: It cannot be started.
    """
    process = subprocess.Popen(  # noqa: S603 - an operator's program or our own, never a tenant's word
        list(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environment(), **(variables or {})},
        cwd="/",
        start_new_session=True,
    )
    assert process.stdout is not None  # asked for above
    kept = bytearray()
    # A thread of its own: what a program says must be taken off it, or it waits for us while we wait for it.
    reader = Thread(target=_keep_end, args=(process.stdout, kept), daemon=True)
    reader.start()
    pidfd = os.pidfd_open(process.pid)
    try:
        in_time, _, _ = select.select([pidfd], [], [], limit_ms / 1_000)
    finally:
        os.close(pidfd)
    # Before it is waited for: until then its number, and with it its group's, is nobody else's.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    status: int | None = None
    with suppress(subprocess.TimeoutExpired):  # one in an uninterruptible call is left to itself
        status = process.wait(_LAST_WORDS_S)
    reader.join(_LAST_WORDS_S)
    return Ended(status if in_time else None, bytes(kept).decode(errors="replace"))


def environment() -> dict[str, str]:
    """Return the environment of a child: ours without systemd's socket and without our own settings.

    Source: agent cases, A48. A child that answers on the socket confuses the watchdog, and the settings hold a token.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MUSTER_AGENT_", "WATCHDOG_")) and name != "NOTIFY_SOCKET"
    }


def _keep_end(stream: IO[bytes], kept: bytearray) -> None:
    with stream:
        while chunk := os.read(stream.fileno(), _CHUNK_BYTES):
            kept += chunk
            del kept[:-OUTPUT_BYTES_MAX]
