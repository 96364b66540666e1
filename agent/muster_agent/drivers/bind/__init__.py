"""Handing devices to tenants: each driver makes one kind of artefact, and takes it away again."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from muster_agent.core.records import Record


class BindError(Exception):
    """A grant, a look or a revoke did not work; the text says what to look at."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """What takes a grant away where the agent is dead, done by a program that knows no driver."""

    files: tuple[str, ...] = ()  # to be deleted
    commands: tuple[tuple[str, ...], ...] = ()  # to be run, each a program and its arguments


NOTHING: Final = Revocation()


class BindDriver(Protocol):
    """One way for a tenant to reach its devices. All calls may be repeated, and each ends within a time limit."""

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

    def revocation(self, record: Record) -> Revocation:
        """Say how to revoke without this driver."""
        ...

    def sweep(self, known: Collection[str]) -> list[str]:
        """Remove the artefacts of allocations that are not known, and return those allocations.

        Records may be lost with a disk, or set aside by an operator; what they granted must not outlive them.

        Raises:
            BindError: One is still there.
        """
        ...
