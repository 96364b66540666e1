"""What the agent must not forget, as small files: records, fence, identity, and what the senses have learnt.

Every write is durable when it returns: temporary file, fsync, rename, fsync of the folder. A file that cannot be
read is set aside as `*.bad` and never guessed at; it stands as a hold on the node until an operator removes it.
Calls block for a disk write; no event loop is needed.
"""

import fcntl
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from muster_agent.core.desired import Fence
from muster_agent.core.records import Record
from muster_shared.codec import Message, decode, dumps, encode, loads
from muster_shared.errors import Problem
from muster_shared.wire import Credential

VERSION: Final = 1
"""Of every file. A higher one was written by a newer agent and is set aside, not misread."""

_RECORD: Final = TypeAdapter(Record)
_FENCE: Final = TypeAdapter(Fence)
_MEMORY: Final = TypeAdapter(dict[str, Any])
T = TypeVar("T")


class AlreadyRunningError(Exception):
    """Another agent owns this state folder; two would hand the same devices out twice."""


class _Sheet(Message):
    """The outer form of every file."""

    version: int
    content: Any


@dataclass(frozen=True, slots=True)
class Bad:
    """A file that was set aside."""

    path: str
    binding: bool  # it said, or may have said, who may reach which device


class Journal:
    """The state folder. One process at a time; `open` takes the lock, `close` gives it back."""

    def __init__(self, folder: Path, lock: BinaryIO) -> None:
        self._folder = folder
        self._records = folder / "allocations"
        self._lock = lock

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Lock the folder, making it where it is missing, and clear away half-written files.

        Raises:
            AlreadyRunningError: Another process holds the lock; the message names its pid.
            OSError: The folder cannot be used.
        """
        records = folder / "allocations"
        records.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.fdopen(_private(folder / "lock", os.O_RDWR | os.O_CREAT), "r+b")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = lock.read(20).decode("ascii", "replace").strip() or "unknown"
            lock.close()
            raise AlreadyRunningError(
                f"another agent (pid {pid}) uses {folder}: stop it, or give this one a state_dir of its own"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n".encode())
        lock.flush()
        for half_written in (*folder.glob("*.tmp"), *records.glob("*.tmp")):
            half_written.unlink()
        return cls(folder, lock)

    def close(self) -> None:
        """Give the lock back; harmless when repeated. Nothing else is pending."""
        self._lock.close()

    def records(self) -> dict[str, Record]:
        """Read every record, by allocation id; those that cannot be read are set aside."""
        found: dict[str, Record] = {}
        for path in sorted(self._records.glob("*.json")):
            record = self._read(path, _RECORD)
            # A file under another record's name would be two truths about one allocation.
            if record and record.allocation_id != path.stem:
                self._set_aside(path)
            elif record:
                found[record.allocation_id] = record
        return found

    def save(self, record: Record) -> None:
        """Write a record.

        Raises:
            OSError: It is not durable; the old record stands.
        """
        self._write(self._records / f"{record.allocation_id}.json", asdict(record))

    def forget(self, allocation_id: str) -> None:
        """Delete a record, also where there is none."""
        (self._records / f"{allocation_id}.json").unlink(missing_ok=True)
        _sync_folder(self._records)

    def fence(self) -> Fence:
        """Read the fence; an empty one where none was ever written."""
        return self._read(self._folder / "fence.json", _FENCE) or Fence()

    def save_fence(self, fence: Fence) -> None:
        """Write the fence."""
        self._write(self._folder / "fence.json", asdict(fence))

    def credential(self) -> Credential | None:
        """Read who this node is; None where it has not joined. A bad file is as good as none: it joins again."""
        try:
            return decode(Credential, (self._folder / "identity.json").read_bytes())
        except (FileNotFoundError, Problem):
            return None

    def save_credential(self, credential: Credential) -> None:
        """Write who this node is; readable by its owner only, like every file here."""
        self._replace(self._folder / "identity.json", encode(credential))

    def memory(self, name: str, recall: Callable[[dict[str, Any]], T]) -> T | None:
        """Read what one of the senses remembered under `name`; None where it remembers nothing.

        Args:
            name: The file's stem.
            recall: Makes the memory of the document; raises ValueError where it cannot.
        """
        path = self._folder / f"{name}.json"
        document = self._read(path, _MEMORY)
        try:
            return None if document is None else recall(document)
        except ValueError:
            self._set_aside(path)
            return None

    def save_memory(self, name: str, memory: dict[str, Any]) -> None:
        """Write what one of the senses shall remember over a restart."""
        self._write(self._folder / f"{name}.json", memory)

    def bad(self) -> list[Bad]:
        """List the files that were set aside, now or by an earlier process, until an operator removes them."""
        paths = sorted((*self._folder.glob("*.bad"), *self._records.glob("*.bad")))
        return [Bad(str(path), path.parent == self._records or path.name.startswith("fence")) for path in paths]

    def _read(self, path: Path, shape: TypeAdapter[T]) -> T | None:
        try:
            sheet = _Sheet.model_validate(loads(path.read_bytes()))
            if sheet.version == VERSION:
                return shape.validate_json(dumps(sheet.content), strict=True)
        except FileNotFoundError:
            return None
        except (ValueError, ValidationError):
            pass
        self._set_aside(path)
        return None

    def _set_aside(self, path: Path) -> None:
        path.rename(path.with_suffix(".bad"))
        _sync_folder(path.parent)

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        self._replace(path, dumps({"version": VERSION, "content": content}))

    def _replace(self, path: Path, body: bytes) -> None:
        temporary = path.with_suffix(".tmp")
        with os.fdopen(_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)


def _private(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _sync_folder(folder: Path) -> None:
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)
