"""One call of somebody: what policies say to it, and what is kept of it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection

from muster_coordinator.core.model import Reservation
from muster_coordinator.service.access import audit
from muster_coordinator.service.access.book import AccessBook
from muster_coordinator.service.access.caller import Caller, Resource
from muster_coordinator.service.access.cedar import Decision, Policies
from muster_coordinator.service.access.weight import Weight
from muster_coordinator.store.commit import JOURNAL, Journal
from muster_coordinator.store.read import PoolRow
from muster_shared.errors import Code, Problem


@dataclass(slots=True)
class Guard:
    """Stands beside a call from its door to its end."""

    caller: Caller
    book: AccessBook
    action: str
    at_ms: int
    request_id: str = ""
    source: str = ""  # the caller's address
    subject: str = ""  # the id or name that the call's path has
    reason: str | None = None  # a person's words
    policies: tuple[str, ...] = ()  # those that decided
    is_denied: bool = False
    is_audited: bool = False  # it belongs into the audit log ...
    is_recorded: bool = False  # ... and stands there

    def check(
        self, connection: Connection, resource: Resource, weight: Weight | None, action: str | None = None
    ) -> None:
        """Ask the policies that hold in this transaction.

        Raises:
            Problem: `FORBIDDEN`, with the names of those that forbid.
        """
        self.judge(self.book.current(connection).policies, resource, weight, action)

    def judge(self, policies: Policies, resource: Resource, weight: Weight | None, action: str | None = None) -> None:
        """Ask these policies, which whoever calls has of this transaction.

        Raises:
            Problem: As `check` does.
        """
        wanted = action or self.action
        self.take(policies.decide(self.caller, wanted, resource, weight), wanted, weight)

    def take(self, decision: Decision, action: str, weight: Weight | None = None) -> None:
        """Keep a decision.

        Raises:
            Problem: `FORBIDDEN`.
        """
        self.policies, self.is_denied = decision.policies, not decision.is_allowed
        if decision.is_allowed:
            return
        asked = "" if weight is None else f" ({_shown(weight)})"
        if decision.policies:
            named = ", ".join(map(repr, decision.policies))
            raise Problem(
                Code.FORBIDDEN, f"{action}{asked} is forbidden by the policy {named}: ask for less, or elsewhere"
            )
        if decision.errors:
            raise Problem(
                Code.FORBIDDEN,
                f"{action}{asked} is refused because a policy could not be judged; ask an operator to mend it: "
                f"{decision.errors[0]}",
            )
        roles = ", ".join(self.caller.roles) or "none"
        raise Problem(
            Code.FORBIDDEN,
            f"no policy lets {self.caller.name} (roles: {roles}) do {action}{asked}: ask an operator for the right",
        )

    def confine(self, tenant_id: str | None) -> str | None:
        """Return whose things the call is about: the caller's own tenant where they are confined to one.

        Raises:
            Problem: `FORBIDDEN` where another tenant is named.
        """
        mine = self.caller.tenant_id
        if mine is None or tenant_id == mine:
            return tenant_id
        if tenant_id is not None:
            self.is_denied = True
            raise Problem(Code.FORBIDDEN, f"your token is good for the tenant {mine!r} alone: name that, or none")
        return mine

    @contextmanager
    def watching(self, connection: Connection) -> Generator[None]:
        """Write what a transaction has changed into the audit log, in the same transaction, once for each call."""
        if self.is_recorded or not self.is_audited:
            yield
            return
        journal: Journal = {}
        connection.execution_options(**{JOURNAL: journal})
        yield
        connection.execution_options(**{JOURNAL: None})
        audit.write(connection, [self.row(journal)])

    def committed(self) -> None:
        """Learn that what was written stands."""
        self.is_recorded = self.is_audited

    def row(self, journal: Journal | None = None, outcome: str = audit.OK) -> audit.Row:
        """Return what the audit log keeps of this call."""
        changed = journal or {}
        what: audit.Row = {
            "at_ms": self.at_ms,
            "request_id": self.request_id,
            "actor": self.caller.actor,
            "source": self.source,
            "action": self.action,
            "object": self.subject or next(iter(changed), ""),
            "decision": "deny" if self.is_denied else "allow",
            "outcome": outcome,
            "reason": self.reason,
        }
        before = {key: former for key, (former, _) in changed.items() if former}
        return audit.row(what, self.policies, before, {key: version for key, (_, version) in changed.items()})


@contextmanager
def watched(connection: Connection, guard: Guard | None) -> Generator[None]:
    """Do what `Guard.watching` does, in a transaction of a flow; `Guard.committed` is for whoever ran the flow."""
    if guard is None:
        yield
        return
    with guard.watching(connection):
        yield


def of_reservation(reservation: Reservation, pool_row: PoolRow) -> Resource:
    """Return a reservation as policies see it."""
    return Resource("Reservation", reservation.id, pool_row.name, reservation.tenant_id)


def _shown(weight: Weight) -> str:
    return f"gpuCount {weight.gpu_count}, gangSize {weight.gang_size}, gpuEquivalentMilli {weight.gpu_equivalent_milli}"
