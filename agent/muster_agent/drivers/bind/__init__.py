"""Handing devices to tenants: each driver makes one kind of artefact, and takes it away again."""

from collections.abc import Collection
from typing import Protocol

from muster_agent.core.records import Record


class BindError(Exception):
    """A grant, a look or a revoke did not work; the text says what to look at."""


class BindDriver(Protocol):
    """One way for a tenant to reach its devices. All calls may be repeated; none waits for long."""

    @property
    def isolates(self) -> bool:
        """Whether revoking alone takes the devices from a tenant that already runs."""
        ...

    def grant(self, record: Record) -> None:
        """Make the artefact whole, whatever is there, and read it back.

        Raises:
            BindError: It could not be made, or reads back different.
        """
        ...

    def verify(self, record: Record) -> None:
        """Look at the artefact.

        Raises:
            BindError: It is missing or not as granted.
        """
        ...

    def revoke(self, record: Record) -> None:
        """Remove the artefact, also where there is none.

        Raises:
            BindError: It is still there.
        """
        ...

    def sweep(self, known: Collection[str]) -> list[str]:
        """Remove the artefacts of allocations that are not known, and return those allocations.

        Records may be lost with a disk, or set aside by an operator; what they granted must not outlive them.

        Raises:
            BindError: One is still there.
        """
        ...
