"""The state file: a picture of the agent in its runtime folder, replaced about once a second."""

import os
from pathlib import Path
from typing import Final

from muster_agent.clock import Clock
from muster_agent.core.picture import VERSION, Picture
from muster_shared.codec import decode, encode
from muster_shared.errors import Problem

EVERY_MS: Final = 1_000  # an event storm must not become a storm of writes
STALE_MS: Final = 30_000
"""An agent that works writes each second; within half a minute a hook may keep it from that."""

_MODE: Final = 0o644  # it holds no secret: tenants see their own allocations anyway, and devices are no secret


class StatusError(Exception):
    """There is no picture to show; the text says what to do."""


class StatusFile:
    """Writes pictures, and keeps the latest.

    Args:
        run_dir: Where the file lies; gone after a reboot.
        clock: Paces the writes.
    """

    def __init__(self, run_dir: Path, clock: Clock) -> None:
        self._path = status_path(run_dir)
        self._clock = clock
        self._written_boot_ms: int | None = None
        self.latest: Picture | None = None

    def show(self, picture: Picture) -> None:
        """Take a new picture; a disk in trouble is no reason to stop."""
        self.latest = picture
        boot_ms = self._clock.boot_ms()
        if self._written_boot_ms is not None and boot_ms - self._written_boot_ms < EVERY_MS:
            return
        self._written_boot_ms = boot_ms
        draft = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft_fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
            with os.fdopen(draft_fd, "wb") as file:
                os.fchmod(draft_fd, _MODE)
                file.write(encode(picture))
            draft.replace(self._path)
        except OSError:
            return


def status_path(run_dir: Path) -> Path:
    """Name the file."""
    return run_dir / "status.json"


def read_picture(run_dir: Path, boot_id: str, boot_ms: int) -> tuple[Picture, int]:
    """Read the picture and its age in milliseconds.

    Raises:
        StatusError: There is none, none of this boot, or none that this version understands.
    """
    path = status_path(run_dir)
    try:
        picture = decode(Picture, path.read_bytes())
    except FileNotFoundError as error:
        raise StatusError(f"{path} is missing: the agent has not run since the host booted; start it") from error
    except PermissionError as error:
        raise StatusError(f"{path} may not be read by you") from error
    except (OSError, Problem) as error:
        raise StatusError(f"{path} cannot be read: {error}") from error
    if picture.version != VERSION:
        raise StatusError(f"{path} is of another version: restart the agent after an upgrade")
    if picture.boot_id != boot_id:
        raise StatusError(f"{path} is of an earlier boot: the agent has not run in this one; start it")
    return picture, max(boot_ms - picture.written_boot_ms, 0)
