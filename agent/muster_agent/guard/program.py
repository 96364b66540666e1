"""The command `muster-guard`: looks at one plan once. systemd runs it at the armed end and again until it is over.

    muster-guard run /run/muster-agent/guard/alloc_1.json

It says in one line what it found, ends with 0 when nothing holds a device past its end, with 1 when something does,
and with 2 where it cannot tell.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from muster_agent.guard.plan import Plan, PlanError
from muster_agent.guard.watch import Time, Verdict, stand
from muster_agent.holders.processes import PROC

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NS_PER_MS: Final = 1_000_000
_MS_PER_S: Final = 1_000
_WORDS: Final = {
    "noPlan": "there is no plan: the agent has ended the assignment in good order",
    "otherBoot": "the plan is of another boot, whose processes are gone",
    "notYet": "its end has not come",
    "agentAlive": "the agent is alive, and ends it itself",
    "emptied": "revoked, and nobody holds its devices",
    "stillHeld": "revoked, but still held by",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="muster-guard", description="Ends a GPU assignment whose agent is dead.")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="look at one plan, once, and do what is due")
    run.add_argument("plan", type=Path, help="the file that the agent wrote for the assignment")
    run.add_argument("--boot-id-file", type=Path, default=_BOOT_ID, help="where the kernel tells its boot id")
    told = parser.parse_args(arguments)
    try:
        plan = Plan.read(told.plan)
        boot_id = told.boot_id_file.read_text().strip()
    except (PlanError, OSError) as error:
        sys.stderr.write(f"muster-guard: {error}\n")
        raise SystemExit(2) from error
    verdict = stand(plan, boot_id, Time(_boot_ms, _pause), PROC)
    sys.stdout.write(f"muster-guard: {told.plan.stem}: {_sentence(verdict)}\n")
    raise SystemExit(1 if verdict.said == "stillHeld" or verdict.troubles else 0)


def _sentence(verdict: Verdict) -> str:
    left = ", ".join(str(holder) for holder in verdict.holders)
    troubles = "".join(f"; {trouble}" for trouble in verdict.troubles)
    return f"{_WORDS[verdict.said]} {left}".rstrip() + troubles


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS


def _pause(ms: int) -> None:
    time.sleep(ms / _MS_PER_S)  # between TERM and KILL; a short-lived program with nothing else to do


if __name__ == "__main__":
    main()
