"""What each process knows of policies and tokens: loaded anew whenever the version in the database has changed."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select, update

from muster_coordinator.service.access.cedar import NamedPolicy, Policies
from muster_coordinator.store.ledger_tables import ACCESS_POLICY, TOKEN
from muster_coordinator.store.tables import CLUSTER

_VERSION: Final = select(CLUSTER.c.access_version)


@dataclass(frozen=True, slots=True)
class Access:
    """Policies, and whether anybody was ever given a token, at one version."""

    policies: Policies
    has_tokens: bool


class AccessBook:
    """The newest of it that this process has seen. Bodies read it from several threads; it is replaced as a whole."""

    def __init__(self) -> None:
        """Know the shipped policies alone, until the first look."""
        self._latest = Access(Policies(0), has_tokens=False)

    @property
    def latest(self) -> Access:
        """What was known at the last look, a tick ago at most."""
        return self._latest

    def current(self, connection: Connection) -> Access:
        """Return what holds in this transaction."""
        version: int = connection.execute(_VERSION).scalar() or 0
        latest = self._latest
        if latest.policies.version != version:
            rows = connection.execute(select(ACCESS_POLICY).order_by(ACCESS_POLICY.c.name))
            added = [NamedPolicy(row.name, row.text) for row in rows]
            has_tokens = connection.execute(select(TOKEN.c.id).limit(1)).first() is not None
            latest = Access(Policies(version, added), has_tokens)
            # A transaction that began before the last change sees what was: for itself alone.
            if version > self._latest.policies.version:
                self._latest = latest
        return latest


def access_changed(connection: Connection) -> None:
    """Let every process look again: policies or tokens are others than before."""
    connection.execute(update(CLUSTER).values(access_version=CLUSTER.c.access_version + 1))
