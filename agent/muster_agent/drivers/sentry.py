"""Arming the guard: a plan for each assignment and a systemd timer that starts the guard at its end.

The timer is transient and kept by systemd, so it outlives the agent and ends with the boot. From its first time on it
starts the guard every few seconds, until the agent takes the plan back.

Source: design, section 6, "No agent"; systemd-run(1), "TIMER OPTIONS".
"""

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from muster_agent.core.records import Record
from muster_agent.drivers import commands
from muster_agent.drivers.bind import BindDriver, BindError, artefact
from muster_agent.drivers.device_nodes import DeviceNodes
from muster_agent.guard.plan import Plan
from muster_agent.holders.processes import Allowed

SYSTEMD_DIR: Final = Path("/run/systemd/system")  # there exactly where systemd runs; sd_booted(3)
AGAIN_S: Final = 5
"""Between two looks of the guard once the end has come: with the agent's ten seconds of silence before it is believed
dead and the grace after, all is over within thirty."""

_REARM_MS: Final = 60_000
"""A timer that would go off so soon is replaced when the end moves. An earlier one does no harm but costs a process."""

_LIMIT_MS: Final = 10_000  # a busy systemd takes a second; one that takes ten is in trouble
_MODE: Final = 0o600  # the guard is root, and nobody else has to know


class Sentry:
    """Keeps the guard's plans and timers as the records are.

    Args:
        run_dir: Holds the plans; a boot empties it, and with it the timers.
        nodes: Which device nodes there are.
        drivers: Whose grants the guard has to revoke.
        allowed: Whom the guard must not end.
        boot_id: Of the running kernel.
        boot_ms: The boot clock.
        systemd_dir: There where systemd runs.
    """

    def __init__(
        self,
        run_dir: Path,
        nodes: DeviceNodes,
        drivers: Sequence[BindDriver],
        allowed: Allowed,
        boot_id: str,
        boot_ms: Callable[[], int],
        systemd_dir: Path = SYSTEMD_DIR,
    ) -> None:
        self._folder = run_dir / "guard"
        self._alive_file = run_dir / "alive"
        self._nodes = nodes
        self._drivers = tuple(drivers)
        self._allowed = allowed
        self._boot_id = boot_id
        self._boot_ms = boot_ms
        self._systemd_dir = systemd_dir
        self._timers: dict[
            str, tuple[str, int]
        ] = {}  # allocation -> its timer, and the boot clock at which it goes off

    def arm(self, record: Record) -> bool:
        """Write the plan and start a timer, unless one that goes off early enough runs. True when both stand.

        Not true where the guard could not tell whom to end: a device without a node of its own, or one that others
        share. Trouble is no exception: an assignment without a guard is told as such, and is none the worse.
        """
        plan = self._plan(record)
        try:
            artefact.write(self._path(record.allocation_id), plan.encoded(), mode=_MODE)
            if not self._systemd_dir.is_dir():
                return False
            has_timer = self._timed(record)
        except (BindError, OSError):
            return False
        is_whole = len(self._nodes.minors().keys() & set(record.gpus)) == len(record.gpus) and bool(plan.nodes)
        return has_timer and is_whole and not record.shared

    def disarm(self, allocation_id: str) -> None:
        """Stop what would look at the plan, then take the plan back: a plan that is left is what a sweep finds."""
        self._timers.pop(allocation_id, None)
        if self._systemd_dir.is_dir():
            with suppress(BindError, OSError):
                self._stop(self._active(allocation_id))
        with suppress(BindError):  # a plan that stays is followed only where the agent is dead
            artefact.remove(self._path(allocation_id))

    def beat(self) -> None:
        """Say that the agent does its work: the guard leaves ends to it."""
        # Not by rename and read back: a half-written number is a beat that is missing, and the next comes in a second.
        with suppress(OSError):
            self._alive_file.parent.mkdir(parents=True, exist_ok=True)
            alive_fd = os.open(self._alive_file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
            with os.fdopen(alive_fd, "wb") as file:
                file.write(b"%020d\n" % self._boot_ms())

    def sweep(self, known: Collection[str]) -> None:
        """Take back the plans of assignments that are none."""
        for path in self._folder.glob("alloc_*.json"):
            if path.stem not in known:
                self.disarm(path.stem)

    def _plan(self, record: Record) -> Plan:
        revocations = [driver.revocation(record) for driver in reversed(self._drivers)]
        own = [uuid for uuid in record.devices if uuid not in record.shared]
        return Plan(
            allocation_id=record.allocation_id,
            generation=record.generation,
            boot_id=self._boot_id,
            end_boot_ms=record.end_boot_ms,
            kill_grace_ms=record.kill_grace_ms,
            nodes=tuple(str(node) for node in self._nodes.private(record, own)),
            files=tuple(file for each in revocations for file in each.files),
            commands=tuple(command for each in revocations for command in each.commands),
            alive_file=str(self._alive_file),
            allowed_names=tuple(sorted(self._allowed.names)),
            allowed_cgroups=self._allowed.cgroups,
        )

    def _path(self, allocation_id: str) -> Path:
        return self._folder / f"{allocation_id}.json"

    def _timed(self, record: Record) -> bool:
        name, due_boot_ms = self._timers.get(record.allocation_id, ("", 0))
        soon = due_boot_ms - self._boot_ms() < _REARM_MS and record.end_boot_ms > due_boot_ms
        active = self._active(record.allocation_id)
        if name in active and due_boot_ms <= record.end_boot_ms and not soon:
            return True
        name = f"muster-guard-{record.allocation_id}-{record.end_boot_ms}.timer"
        if name not in active:
            self._start(record, name)
            active = self._active(record.allocation_id)
        if name not in active:
            return False
        self._timers[record.allocation_id] = (name, record.end_boot_ms)
        self._stop([other for other in active if other != name])  # last, so that one always runs
        return True

    def _start(self, record: Record, timer: str) -> None:
        remaining_s = max(-(-(record.end_boot_ms - self._boot_ms()) // 1_000), 1)
        self._run(
            "systemd-run", "--quiet", "--collect", f"--unit={timer.removesuffix('.timer')}",
            f"--description=End of {record.allocation_id}", f"--on-active={remaining_s}s",
            f"--on-unit-inactive={AGAIN_S}s", "--timer-property=AccuracySec=1s",
            "systemctl", "start", f"muster-guard@{record.allocation_id}.service",
        )  # fmt: skip

    def _active(self, allocation_id: str) -> list[str]:
        said = self._run(
            "systemctl", "list-units", "--type=timer", "--state=active", "--plain", "--no-legend", "--no-pager",
            f"muster-guard-{allocation_id}-*.timer",
        )  # fmt: skip
        return [line.split()[0] for line in said.splitlines() if line.strip()]

    def _stop(self, timers: Sequence[str]) -> None:
        if timers:
            self._run("systemctl", "stop", *timers)

    def _run(self, *arguments: str) -> str:
        ended = commands.run(arguments, _LIMIT_MS)
        if ended.trouble:
            raise BindError(f"{' '.join(arguments[:2])} {ended.trouble}")
        return ended.output
