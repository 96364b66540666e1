"""Artefacts as files: written whole or not at all, read back, removed."""

import os
from collections.abc import Collection
from pathlib import Path

from muster_agent.core.records import Record
from muster_agent.drivers.bind import BindError


def write(path: Path, body: bytes, *, mode: int) -> None:
    """Write a file in one step and read it back. Not synced: after a power cut no grant holds anyway.

    Raises:
        BindError: It could not be written, or reads back different.
    """
    # Readers take any name that ends as the final one does, so the temporary one must end otherwise.
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            path.parent.chmod(0o755)  # tenants and runtimes read here, whatever our umask
        file_fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(file_fd, "wb") as file:
            os.fchmod(file_fd, mode)
            file.write(body)
        temporary.replace(path)
    except OSError as error:
        raise BindError(f"cannot write {path}: {error.strerror}") from error
    check(path, body)


def check(path: Path, body: bytes) -> None:
    """Compare a file with what it should say.

    Raises:
        BindError: It is missing, unreadable or different.
    """
    try:
        found = path.read_bytes()
    except OSError as error:
        raise BindError(f"cannot read {path}: {error.strerror}") from error
    if found != body:
        raise BindError(f"{path} is not as it was granted")


def remove(path: Path) -> None:
    """Delete a file, also where there is none.

    Raises:
        BindError: It cannot be deleted.
    """
    try:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.tmp").unlink(missing_ok=True)
    except OSError as error:
        raise BindError(f"cannot delete {path}: {error.strerror}") from error


def remove_strays(folder: Path, prefix: str, suffix: str, known: Collection[str]) -> list[str]:
    """Delete the files of allocations that no record knows; return their allocations.

    Args:
        folder: Of one driver; nothing happens where it is missing.
        prefix: What stands before the allocation's id in a file's name.
        suffix: What stands after it.
        known: Allocations with a record.

    Raises:
        BindError: One cannot be deleted.
    """
    found = {
        path.name.removeprefix(prefix).removesuffix(suffix): path for path in folder.glob(f"{prefix}alloc_*{suffix}")
    }
    strays = sorted(found.keys() - set(known))
    for allocation_id in strays:
        remove(found[allocation_id])
    return strays


def devices(record: Record) -> tuple[str, ...]:
    """Return the devices of a record in order.

    Raises:
        BindError: There are none. An empty list would read as *all devices* to CUDA and to container runtimes.

    Source: reliability cases, L07 and L34.
    """
    if not record.devices:
        raise BindError(f"{record.allocation_id} names no device, and no device is not a grant")
    return tuple(sorted(record.devices))
