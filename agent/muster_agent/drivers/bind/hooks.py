"""Operator hooks: executables in `bind.d`, `unbind.d` and `preempt.d`, for whatever a site hands over in its own way.

A hook gets its phase and the allocation as arguments and everything else as MUSTER_... variables. It must bear being
run again: a crash may come between a hook and the note that it ran.
"""

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter

from muster_agent.core.records import Record
from muster_agent.drivers import commands
from muster_agent.drivers.bind import NOTHING, BindError, Revocation, artefact
from muster_shared.codec import dumps

Phase = Literal["bind", "unbind", "preempt"]
_NOTE: Final = TypeAdapter(dict[str, str])
_MODE: Final = 0o600  # ours alone
_LEFT_BY_PACKAGES: Final = ("~", ".dpkg-old", ".dpkg-new", ".dpkg-dist", ".rpmsave", ".rpmnew", ".bak")


class Hooks:
    """Runs hooks in the order of their names, and those of an unbind in reverse.

    What ran is noted before it runs, so that an unbind is run exactly for what a bind may have begun; a note survives
    a reboot, because what a hook did may survive one too.

    Args:
        folder: Where `bind.d`, `unbind.d` and `preempt.d` are; each may be missing.
        notes: A folder of ours that survives a reboot.
        limit_ms: For each hook.
        isolates: The operator's word that the unbind hooks take the devices from a running tenant.
    """

    def __init__(self, folder: Path, notes: Path, limit_ms: int, *, isolates: bool = False) -> None:
        self._folder = folder
        self._notes = notes
        self._limit_ms = limit_ms
        self._isolates = isolates

    @property
    def isolates(self) -> bool:
        """As the operator says."""
        return self._isolates

    def grant(self, record: Record) -> None:
        """Run the bind hooks, once for each generation; one that fails ends the row."""
        note = {**described(record), "done": ""}
        if self._note(record.allocation_id) == {**note, "done": "yes"}:
            return
        hooks = list(self._hooks("bind"))
        if not hooks and not list(self._hooks("unbind")):
            return
        self._write(record.allocation_id, note)
        for hook in hooks:
            self._run(hook, "bind", note)
        self._write(record.allocation_id, {**note, "done": "yes"})

    def verify(self, record: Record) -> None:
        """Trust the hooks: what they made is theirs to look after."""

    def revoke(self, record: Record) -> None:
        """Run the unbind hooks, all of them whatever one says, where a bind may have begun."""
        self._undo(record.allocation_id)

    def revocation(self, record: Record) -> Revocation:
        """Leave hooks to the agent: they may need rights that the guard does not have."""
        del record
        return NOTHING

    def sweep(self, known: Collection[str]) -> list[str]:
        """Undo what no record asks for."""
        strays = sorted({path.stem for path in self._notes.glob("alloc_*.json")} - set(known))
        for allocation_id in strays:
            self._undo(allocation_id)
        return strays

    def preempt(self, record: Record, preempt_in_ms: int) -> None:
        """Run the preempt hooks: the tenant has so long to leave.

        Raises:
            BindError: One failed; the others have run.
        """
        variables = {**described(record), "MUSTER_PREEMPT_IN_MS": str(max(preempt_in_ms, 0))}
        self._run_all(self._hooks("preempt"), "preempt", variables)

    def _undo(self, allocation_id: str) -> None:
        note = self._note(allocation_id)
        if note is None:
            return
        self._run_all(reversed(list(self._hooks("unbind"))), "unbind", note)
        artefact.remove(self._path(allocation_id))

    def _run_all(self, hooks: Iterator[Path], phase: Phase, variables: dict[str, str]) -> None:
        troubles: list[str] = []
        for hook in hooks:
            try:
                self._run(hook, phase, variables)
            except BindError as error:
                troubles.append(str(error))
        if troubles:
            raise BindError("; ".join(troubles))

    def _run(self, hook: Path, phase: Phase, variables: dict[str, str]) -> None:
        told = {name: value for name, value in variables.items() if name.startswith("MUSTER_")}
        arguments = [str(hook), phase, variables["MUSTER_ALLOCATION"]]
        try:
            ended = commands.run(arguments, self._limit_ms, {**told, "MUSTER_PHASE": phase})
        except OSError as error:
            raise BindError(f"hookFailed: {hook} cannot be started: {error.strerror}") from error
        if ended.trouble:
            raise BindError(f"hookFailed: {hook} {ended.trouble}")

    def _hooks(self, phase: Phase) -> Iterator[Path]:
        """List the hooks of a phase by name.

        Raises:
            BindError: Somebody else than root or ourselves could change one, and would become root by it.
        """
        try:
            paths = sorted((self._folder / f"{phase}.d").iterdir())
        except FileNotFoundError:
            return
        for path in paths:
            found = path.stat() if path.exists() else None
            if not found or path.name.startswith(".") or path.name.endswith(_LEFT_BY_PACKAGES):
                continue
            if not stat.S_ISREG(found.st_mode) or not os.access(path, os.X_OK):
                continue
            if found.st_uid not in {0, os.geteuid()} or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise BindError(f"hookUnsafe: {path} can be changed by others: chown root and chmod go-w it")
            yield path

    def _path(self, allocation_id: str) -> Path:
        return self._notes / f"{allocation_id}.json"

    def _note(self, allocation_id: str) -> dict[str, str] | None:
        try:
            return _NOTE.validate_json(self._path(allocation_id).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            # Half of a note is a bind that may have begun.
            return {"MUSTER_ALLOCATION": allocation_id}

    def _write(self, allocation_id: str, note: dict[str, str]) -> None:
        artefact.write(self._path(allocation_id), dumps(note), mode=_MODE)


def described(record: Record) -> dict[str, str]:
    """Describe an assignment in variables. The end is left out: it moves, and a hook that ran does not run again."""
    variables = {
        "MUSTER_ALLOCATION": record.allocation_id,
        "MUSTER_RESERVATION": record.reservation_id,
        "MUSTER_GENERATION": str(record.generation),
        "MUSTER_TENANT": record.tenant_id,
        "MUSTER_DEVICES": ",".join(artefact.devices(record)),
        "MUSTER_SHARED": ",".join(record.shared),
        "MUSTER_GPUS": ",".join(sorted(record.gpus)),
    }
    if record.topology_value is not None:
        variables["MUSTER_TOPOLOGY"] = f"{record.topology_key}={record.topology_value}"
    if record.imex_channel is not None:
        variables["MUSTER_IMEX_CHANNEL"] = str(record.imex_channel)
    return variables
