"""Prometheus' own programs: those of the host, else Debian's packages unpacked into a folder, never installed."""

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

PROGRAMS: Final = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "alertmanager": "prometheus-alertmanager",
}
"""Programs, and the Debian package that has each."""

_DEBIAN_NAMES: Final = {"alertmanager": "prometheus-alertmanager"}
_PATIENCE_S: Final = 120.0


class MissingError(Exception):
    """The program is not here and cannot be had; the message says why."""


def program(name: str, cache_dir: Path) -> Path:
    """Return a program of `PROGRAMS`.

    Args:
        name: As its makers call it.
        cache_dir: Where packages are unpacked and kept.

    Raises:
        MissingError: Neither on PATH nor to be had by apt.
    """
    for known in {name, _DEBIAN_NAMES.get(name, name)}:
        if found := shutil.which(known):
            return Path(found)
    unpacked = cache_dir / "usr" / "bin" / _DEBIAN_NAMES.get(name, name)
    # Tests run in several processes, which share the folder: one unpacks, the others wait for it.
    with (cache_dir / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not unpacked.exists():
            _unpack(PROGRAMS[name], cache_dir)
    return unpacked


@cache
def _unpack(package: str, folder: Path) -> None:
    """Download a package with lists of our own, so that nothing of the host changes and nobody need be root."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise MissingError(f"{package} is not installed, and there is no apt to get it by")
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    options = ["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10", "-o", "Acquire::https::Timeout=10"]
    own = [*options, "-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder}"]
    download = ["apt-get", "-q", "download", package]
    tries = ([*download, *options],), (["apt-get", "-q", "update", *own], [*download, *own])
    said = ""
    for commands in tries:
        for command in commands:
            done, said = _run(command, folder)
            if not done:
                break
        else:
            archive = max(folder.glob(f"{package}_*.deb"))
            subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
            return
    raise MissingError(f"{package} is not installed, and apt cannot get it: {said}")


def _run(command: list[str], folder: Path) -> tuple[bool, str]:
    try:
        ended = subprocess.run(
            command,
            check=False,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return False, "it did not answer in time"
    lines = (ended.stderr or ended.stdout).strip().splitlines()
    return ended.returncode == 0, lines[-1] if lines else ""
