"""What the guard has to do for one assignment, as a file: written by the agent, read by the guard alone."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self, cast

VERSION: Final = 1
"""Of the file. A guard that reads another one does nothing, and says so."""


class PlanError(Exception):
    """The plan cannot be followed; the text says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How one assignment ends without the agent. Times count from the boot that is named."""

    allocation_id: str
    generation: int
    boot_id: str
    end_boot_ms: int  # nothing is done before
    kill_grace_ms: int  # between TERM and KILL
    nodes: tuple[str, ...]  # who has one of these open then is ended
    files: tuple[str, ...]  # deleted first, so that nobody new comes
    commands: tuple[tuple[str, ...], ...]  # run first, for the same reason
    alive_file: str  # the agent writes the boot clock there as long as it does its work
    allowed_names: tuple[str, ...]  # daemons that are never ended
    allowed_cgroups: tuple[str, ...]

    def encoded(self) -> bytes:
        """Return the file's text."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1).encode()

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a plan; None where there is none, which is the usual way for an assignment to have ended.

        Raises:
            PlanError: The file is of another version, or damaged.
        """
        try:
            document: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise PlanError(f"{path} cannot be read: {error}") from error
        try:
            if document.pop("version") != VERSION:
                raise PlanError(f"{path} is of another version than this guard: install guard and agent together")
            return cls(
                allocation_id=str(document["allocation_id"]),
                generation=int(document["generation"]),
                boot_id=str(document["boot_id"]),
                end_boot_ms=int(document["end_boot_ms"]),
                kill_grace_ms=int(document["kill_grace_ms"]),
                nodes=_words(document["nodes"]),
                files=_words(document["files"]),
                commands=tuple(map(_words, document["commands"])),
                alive_file=str(document["alive_file"]),
                allowed_names=_words(document["allowed_names"]),
                allowed_cgroups=_words(document["allowed_cgroups"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"{path} is damaged: {error}") from error


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return tuple(str(word) for word in cast("list[object]", value))
