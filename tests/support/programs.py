"""Programs that tests write: scripts of one purpose, and processes that hold a device until they are told to end."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HOLD = """
import signal, sys
def note(number, _frame):
    with open(sys.argv[1] + ".signals", "a") as file:
        file.write(signal.Signals(number).name + " ")
if {term!r} == "is ignored":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if {term!r} == "is noted":
    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGCONT, note)
held = [open(path) for path in sys.argv[1:]]
print("holding", flush=True)
while True:
    signal.pause()
"""


def script(path: Path, body: str, interpreter: str = "/bin/sh") -> Path:
    """Write an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{interpreter}\n{body}")
    path.chmod(0o755)
    return path


@dataclass
class Running:
    """A process that is not our child."""

    pid: int
    pidfd: int

    def has_ended(self, within_s: float = 0) -> bool:
        """Wait for its end, so long at most."""
        return bool(select.select([self.pidfd], [], [], within_s)[0])


@contextmanager
def holding(
    *paths: Path, term: Literal["ends", "is ignored", "is noted"] = "ends", program: str | None = None
) -> Iterator[Running]:
    """Run a process that has files open. It is nobody's child, because an agent leaves its own children alone.

    Args:
        paths: What it opens.
        term: What becomes of it at SIGTERM. Where that is noted, so is SIGCONT, which Python handles after it.
        program: Another interpreter than this one.
    """
    body = HOLD.format(term=term)
    launcher = subprocess.Popen(
        ["/bin/sh", "-c", '"$@" & echo $!', "sh", program or sys.executable, "-c", body, *map(str, paths)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    pid = int(launcher.stdout.readline())
    pidfd = os.pidfd_open(pid)
    try:
        assert launcher.stdout.readline() == "holding\n"
        launcher.wait()
        yield Running(pid, pidfd)
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
        launcher.stdout.close()
