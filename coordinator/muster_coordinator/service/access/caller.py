"""Who calls, and what a call is about, as values and as the entities that policies speak of."""

from dataclasses import dataclass
from typing import Any, Final, Literal

Role = Literal["operator", "tenant", "auditor", "read-only", "metrics"]
"""What a token may be good for. Nodes have credentials of their own."""

ROLES: Final[tuple[Role, ...]] = ("operator", "tenant", "auditor", "read-only", "metrics")

MUSTER: Final = "muster"
"""The id of the one entity of type `Muster`: the coordinator itself."""

Uid = dict[str, str]
Entity = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who calls. Confined to a tenant, or to a node, or to nothing."""

    kind: Literal["User", "Service", "Node", "Nobody"]
    id: str
    name: str
    roles: tuple[str, ...] = ()
    tenant_id: str | None = None

    @property
    def actor(self) -> str:
        """How the audit log calls them."""
        return f"{self.kind.lower()}:{self.name}"

    @property
    def uid(self) -> Uid:
        """Who a policy's `principal` is."""
        return {"type": self.kind, "id": self.id}

    def entities(self) -> list[Entity]:
        """Return what policies may know of them."""
        parents = [{"type": "Role", "id": role} for role in self.roles]
        attributes: dict[str, Any] = {"name": self.name}
        if self.tenant_id is not None:
            parents.append({"type": "Tenant", "id": self.tenant_id})
            attributes["tenant"] = self.tenant_id
        return [{"uid": self.uid, "attrs": attributes, "parents": parents}]


NOBODY: Final = Caller("Nobody", "nobody", "nobody")
"""Who shows no credential, or one that nobody has."""

ROOT: Final = Caller("Service", "root", "root", ("operator",))
"""Whoever shows the token of the coordinator's own configuration."""

LOCAL: Final = Caller("Service", "local", "local", ("operator",))
"""Anybody on the coordinator's own machine, as long as it knows no token at all."""

SCRAPER: Final = Caller("Service", "scraper", "scraper", ("metrics",))


def node_caller(node_id: str) -> Caller:
    """Return the agent of a node."""
    return Caller("Node", node_id, node_id, ("node",))


@dataclass(frozen=True, slots=True)
class Resource:
    """What a call is about. Attributes are known where a single thing is."""

    kind: Literal["Reservation", "Series", "Node", "Pool", "Muster"] = "Muster"
    id: str = MUSTER
    pool: str | None = None  # its name; pools are known to policies by name
    tenant_id: str | None = None
    name: str | None = None

    @property
    def uid(self) -> Uid:
        """What a policy's `resource` is."""
        return {"type": self.kind, "id": self.id}

    def entities(self) -> list[Entity]:
        """Return what policies may know of it."""
        parents: list[Uid] = []
        if self.pool is not None and self.kind != "Pool":
            parents.append({"type": "Pool", "id": self.pool})
        if self.tenant_id is not None:
            parents.append({"type": "Tenant", "id": self.tenant_id})
        known = {"tenant": self.tenant_id, "name": self.name}
        attributes = {key: value for key, value in known.items() if value is not None}
        return [{"uid": self.uid, "attrs": attributes, "parents": parents}]


WHOLE: Final = Resource()
