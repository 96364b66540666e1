"""The NVML process: `python -m muster_agent.drivers.nvml`."""

import ctypes
import os
import sys
import threading

from muster_agent.drivers.nvml.scan import Scanner
from muster_agent.drivers.nvml.talk import Said, written


def main() -> None:
    """Answer requests on standard input until it ends."""
    # Libraries print; what they print must not reach the parent as an answer.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    one_at_a_time = threading.Lock()

    def say(said: Said) -> None:
        with one_at_a_time:
            answers.write(written(said))

    _give_back()
    scanner = Scanner(lambda event: say(Said(event=event)))
    for request in sys.stdin.buffer:
        reading = scanner.read()
        say(Said(answers=int(request), reading=reading))
        if reading.nvml == "driverMismatch":
            return  # the old library stays mapped in this process: only another one can load the new


def _give_back() -> None:
    """Return what importing has left over: a quarter of the process, which lives as long as the host."""
    # Other C libraries than glibc give it back by themselves, or never.
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


if __name__ == "__main__":
    main()
