"""Processes that hold device nodes, found through the files that they have open.

Source: agent facts, section 2.5: NVML shows neither zombies of the driver nor whoever holds a node without computing.
"""

import fnmatch
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
DAEMONS: Final = (
    "nvidia-persistenced",
    "nv-fabricmanager",
    "nvidia-imex",
    "nv-hostengine",
    "dcgm-exporter",
)
"""Programs of the host that hold GPUs and compute nothing on them. Source: agent facts, section 4.2, step 4."""

_STARTED_FIELD: Final = 22 - 3  # of /proc/<pid>/stat, counted from the state, which follows the name's parenthesis
_PARENT_FIELD: Final = 4 - 3  # the same way
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """One process at one time of its life: the number alone may be another process a moment later."""

    pid: int
    started_ticks: int  # since boot, as the kernel counts
    name: str

    @property
    def started_boot_ms(self) -> int:
        """Boot clock of its start, in milliseconds, rounded down to a tick."""
        return self.started_ticks * 1_000 // _TICKS_PER_S

    def __str__(self) -> str:
        """Show what an operator looks for."""
        return f"pid {self.pid} ({self.name})"


@dataclass(frozen=True, slots=True)
class Allowed:
    """Who may be on a device at any time, and is never ended.

    Args:
        names: Of programs: they count only where root owns the program's file and it runs outside of containers, for
            a tenant may call itself anything.
        cgroups: Patterns of cgroup paths that the operator trusts, such as `/kubepods*/*dcgm*`.
    """

    names: frozenset[str] = frozenset(DAEMONS)
    cgroups: tuple[str, ...] = ()


class ProcessTable:
    """The processes of the host.

    Args:
        proc: Where the kernel shows them.
        allowed: Whom to leave out.
    """

    def __init__(self, proc: Path = PROC, allowed: Allowed | None = None) -> None:
        self._proc = proc
        self._allowed = allowed or Allowed()

    def holding(self, nodes: Iterable[Path]) -> list[Holder]:
        """List who has one of the nodes open, by pid, without ourselves, our children and whoever is allowed.

        Costs a look at every open file of the host: about a second where there are half a million.
        """
        wanted = {identity for node in nodes if (identity := _identity(node))}
        return self._known(pid for pid in self._pids() if self._has_open(pid, wanted)) if wanted else []

    def named(self, pids: Iterable[int], seen_boot_ms: int) -> list[Holder]:
        """List those of some processes that still are who they were when somebody saw them, zombies among them.

        Args:
            pids: As NVML told them, which may be gone, or may never have been.
            seen_boot_ms: When it told. Whoever began later got the number of one that is gone.

        Source: agent cases, A44.
        """
        return [holder for holder in self._known(pids) if holder.started_boot_ms <= seen_boot_ms]

    def holder(self, pid: int) -> Holder | None:
        """Read who a process is now; None where there is none."""
        fields = self._stat(pid)
        if fields is None:
            return None
        name, numbers = fields
        return Holder(pid, int(numbers[_STARTED_FIELD]), name)

    def _known(self, pids: Iterable[int]) -> list[Holder]:
        found = (self.holder(pid) for pid in sorted(set(pids)) if not self._is_ours(pid) and not self._is_allowed(pid))
        return [holder for holder in found if holder]

    def _pids(self) -> Iterator[int]:
        with os.scandir(self._proc) as entries:
            yield from [int(entry.name) for entry in entries if entry.name.isdecimal()]

    def _has_open(self, pid: int, wanted: set[tuple[int, ...]]) -> bool:
        try:
            with os.scandir(self._proc / str(pid) / "fd") as entries:
                paths = [entry.path for entry in entries]
        except OSError:
            return False  # it is gone, or it is a thread of the kernel
        # Asking what a file is may wait for a network; only those that are named like a GPU's are asked.
        return any("nvidia" in _link(path) and _identity(Path(path)) in wanted for path in paths)

    def _stat(self, pid: int) -> tuple[str, list[str]] | None:
        if pid <= 0:
            return None
        try:
            text = (self._proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        # The name may hold spaces and parentheses; what follows its last one does not.
        head, _, tail = text.rpartition(")")
        return head.partition("(")[2], tail.split()

    def _is_ours(self, pid: int) -> bool:
        own = os.getpid()
        while pid > 1 and pid != own:
            fields = self._stat(pid)
            pid = int(fields[1][_PARENT_FIELD]) if fields else 0
        return pid == own

    def _is_allowed(self, pid: int) -> bool:
        return pid == 1 or self._is_daemon(pid) or self._is_in_trusted_cgroup(pid)

    def _is_daemon(self, pid: int) -> bool:
        folder = self._proc / str(pid)
        try:
            program = (folder / "exe").readlink().name.removesuffix(" (deleted)")
            return (
                program in self._allowed.names
                and (folder / "exe").stat().st_uid == 0
                and (folder / "ns" / "pid").readlink() == (self._proc / "self" / "ns" / "pid").readlink()
            )
        except OSError:
            return False

    def _is_in_trusted_cgroup(self, pid: int) -> bool:
        if not self._allowed.cgroups:
            return False
        try:
            lines = (self._proc / str(pid) / "cgroup").read_text(errors="replace").splitlines()
        except OSError:
            return False
        paths = [line.split(":", 2)[-1] for line in lines]
        return any(fnmatch.fnmatchcase(path, pattern) for path in paths for pattern in self._allowed.cgroups)


def _identity(path: Path) -> tuple[int, ...] | None:
    """Tell which node a path means, however many names it has: containers make their own."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_rdev,) if stat.S_ISCHR(found.st_mode) else (found.st_dev, found.st_ino)


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - of half a million files, a Path each is a second more
    except OSError:
        return ""
