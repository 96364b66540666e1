"""One look of the guard: is the end there, is the agent dead, and if both are so, revoke and end what is left."""

import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from muster_agent.guard.plan import Plan
from muster_agent.holders.ending import send
from muster_agent.holders.processes import Allowed, Holder, ProcessTable

ALIVE_MS: Final = 10_000
"""An agent that works says so each second. One that has not for so long is dead, or as good as: then 20 are left of the
30 seconds after which a silent node's devices may be given to somebody else, for TERM, grace and KILL."""

GRACE_MS_MAX: Final = 10_000  # the same sum: whatever grace the coordinator told the agent
_LOOK_EVERY_MS: Final = 500  # for holders to go within the grace
_COMMAND_S: Final = 5.0  # each of the commands; systemd answers in one or not at all

Said = Literal["noPlan", "otherBoot", "notYet", "agentAlive", "emptied", "stillHeld"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look found, or what was done."""

    said: Said
    holders: tuple[Holder, ...] = ()  # who is left
    troubles: tuple[str, ...] = ()  # revocations that did not work


@dataclass(frozen=True, slots=True)
class Time:
    """The boot clock, and how to wait on it."""

    boot_ms: Callable[[], int]
    pause: Callable[[int], None]  # milliseconds


def stand(plan: Plan | None, boot_id: str, time: Time, proc: Path) -> Verdict:
    """Do what is due now, once. Repeating it is harmless.

    Args:
        plan: None where the agent has taken it back.
        boot_id: Of the running kernel.
        time: Clock and pause.
        proc: Where processes are shown.
    """
    if plan is None:
        return Verdict("noPlan")
    if plan.boot_id != boot_id:
        return Verdict("otherBoot")
    if time.boot_ms() < plan.end_boot_ms:
        return Verdict("notYet")
    if _is_alive(Path(plan.alive_file), time.boot_ms()):
        return Verdict("agentAlive")
    troubles = _revoke(plan)
    table = ProcessTable(proc, Allowed(frozenset(plan.allowed_names), plan.allowed_cgroups))
    left = _end(plan, time, table)
    return Verdict("stillHeld" if left else "emptied", tuple(left), tuple(troubles))


def _is_alive(alive_file: Path, boot_ms: int) -> bool:
    try:
        said_boot_ms = int(alive_file.read_text())
    except (OSError, ValueError):
        return False
    return 0 <= boot_ms - said_boot_ms < ALIVE_MS


def _revoke(plan: Plan) -> list[str]:
    troubles: list[str] = []
    for file in plan.files:
        try:
            Path(file).unlink(missing_ok=True)
        except OSError as error:
            troubles.append(f"cannot delete {file}: {error.strerror}")
    for command in plan.commands:
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_COMMAND_S, cwd="/")  # noqa: S603 - the agent wrote it
        except (OSError, subprocess.SubprocessError) as error:
            troubles.append(f"{' '.join(command)}: {error}")
    return troubles


def _end(plan: Plan, time: Time, table: ProcessTable) -> list[Holder]:
    """End the holders: TERM once, KILL when the grace is over; return who is left a moment later."""
    nodes = [Path(node) for node in plan.nodes]
    told: set[Holder] = set()
    over_boot_ms = time.boot_ms() + min(plan.kill_grace_ms, GRACE_MS_MAX)
    while (left := table.holding(nodes)) and time.boot_ms() < over_boot_ms:
        for holder in left:
            if holder not in told:
                send(holder, signal.SIGTERM, table)
        told.update(left)
        time.pause(_LOOK_EVERY_MS)
    for holder in left:
        with suppress(PermissionError):  # it is told as left
            send(holder, signal.SIGKILL, table)
    if left:
        time.pause(_LOOK_EVERY_MS)
        left = table.holding(nodes)
    return left
