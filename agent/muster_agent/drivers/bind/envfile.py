"""An environment file per allocation: for batch systems, shells, `podman --env-file` and `EnvironmentFile=`.

It tells a willing tenant which devices are its own; it keeps nobody from others.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from muster_agent.core.records import Record
from muster_agent.drivers.bind import Revocation, artefact
from muster_shared.time import format_instant

_MODE: Final = 0o644  # it holds no secret, and tenants are not root


class EnvFile:
    """Writes `<run_dir>/reservations/<allocation>.env`."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / "reservations"

    @property
    def isolates(self) -> bool:
        """A running tenant has read its file already."""
        return False

    def grant(self, record: Record) -> None:
        """Write the file."""
        artefact.write(self._path(record), _body(record), mode=_MODE)

    def verify(self, record: Record) -> None:
        """Compare the file."""
        artefact.check(self._path(record), _body(record))

    def revoke(self, record: Record) -> None:
        """Delete the file."""
        artefact.remove(self._path(record))

    def revocation(self, record: Record) -> Revocation:
        """Name the file."""
        return Revocation(files=(str(self._path(record)),))

    def sweep(self, known: Collection[str]) -> list[str]:
        """Delete the files that no record asks for."""
        return artefact.remove_strays(self._folder, "", ".env", known)

    def _path(self, record: Record) -> Path:
        return self._folder / f"{record.allocation_id}.env"


def _body(record: Record) -> bytes:
    # No value is quoted, because shells, systemd and podman disagree on quotes. None needs to be: core/desired.py
    # refuses ids with odd letters.
    values = {
        "CUDA_VISIBLE_DEVICES": ",".join(artefact.devices(record)),
        "MUSTER_ALLOCATION": record.allocation_id,
        "MUSTER_END": format_instant(record.end_unix_ms),
        "MUSTER_GENERATION": str(record.generation),
        "MUSTER_RESERVATION": record.reservation_id,
        "MUSTER_TENANT": record.tenant_id,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items()).encode()
