"""Tables of quota, usage, access and audit. Conventions as in `tables`, whose metadata they share."""

from typing import Final

from sqlalchemy import BigInteger, CheckConstraint, Index, Integer, Table
from sqlmodel import Field, SQLModel

from muster_coordinator.store import tables


class Quota(SQLModel, table=True):
    """How much of a pool a tenant may hold at once. A tenant without a row has no limit."""

    tenant_id: str = Field(primary_key=True)
    pool_id: str = Field(primary_key=True, foreign_key="pool.id")
    limit_milli: int = Field(sa_type=BigInteger)
    changed_ms: int = Field(sa_type=BigInteger)


class Charge(SQLModel, table=True):
    """A reservation's charge against its tenant's quota. Returned by one update of one row, so never twice."""

    __table_args__ = (
        Index("ix_charge_tenant_id_pool_id_returned_ms", "tenant_id", "pool_id", "returned_ms"),
        CheckConstraint("milli >= 0", name="milli"),
    )
    reservation_id: str = Field(primary_key=True, foreign_key="reservation.id")
    number: int = Field(primary_key=True)  # 1 for the first; preempted work that is placed again is charged anew
    tenant_id: str
    pool_id: str = Field(foreign_key="pool.id")
    milli: int = Field(sa_type=BigInteger)
    charged_ms: int = Field(sa_type=BigInteger)
    returned_ms: int | None = Field(default=None, sa_type=BigInteger)


class Usage(SQLModel, table=True):
    """What one allocation has used, from active to its confirmed release. Written once, never changed."""

    __table_args__ = (Index("ix_usage_tenant_id_end_ms", "tenant_id", "end_ms"),)
    allocation_id: str = Field(primary_key=True, foreign_key="allocation.id")
    reservation_id: str = Field(foreign_key="reservation.id")
    tenant_id: str
    pool_id: str = Field(foreign_key="pool.id")
    budget: str | None = None
    kind: str  # regular, spot, unallocated
    node_id: str = Field(foreign_key="node.id")
    milli: int = Field(sa_type=BigInteger)
    start_ms: int = Field(sa_type=BigInteger)
    end_ms: int = Field(sa_type=BigInteger)


class Token(SQLModel, table=True):
    """A bearer token of a person or a program. Only its hash is kept."""

    id: str = Field(primary_key=True)
    name: str
    hash: str = Field(unique=True)  # SHA-256
    roles: str  # JSON list
    tenant_id: str | None = None
    created_ms: int = Field(sa_type=BigInteger)
    expires_ms: int = Field(sa_type=BigInteger)
    revoked_ms: int | None = Field(default=None, sa_type=BigInteger)
    last_used_ms: int | None = Field(default=None, sa_type=BigInteger)
    created_by: str


class AccessPolicy(SQLModel, table=True):
    """A Cedar policy that an operator has added to the shipped ones."""

    __tablename__ = "access_policy"  # pyright: ignore[reportAssignmentType] - as SQLModel documents it
    name: str = Field(primary_key=True)
    text: str
    version: int = 1
    changed_ms: int = Field(sa_type=BigInteger)


class JoinToken(SQLModel, table=True):
    """Lets one host of a given name join one pool, once."""

    __tablename__ = "join_token"  # pyright: ignore[reportAssignmentType] - as SQLModel documents it
    id: str = Field(primary_key=True)
    hash: str = Field(unique=True)
    node_name: str
    pool_id: str = Field(foreign_key="pool.id")
    created_ms: int = Field(sa_type=BigInteger)
    expires_ms: int = Field(sa_type=BigInteger)
    used_ms: int | None = Field(default=None, sa_type=BigInteger)
    revoked_ms: int | None = Field(default=None, sa_type=BigInteger)


class Audit(SQLModel, table=True):
    """One mutating call: who, what, from where, with which decision.

    Its place in the chain, and with it the two hashes, is given once it is committed: each row holds the hash of the
    one before.
    """

    number: int | None = Field(default=None, primary_key=True, sa_type=BigInteger().with_variant(Integer(), "sqlite"))
    at_ms: int = Field(sa_type=BigInteger)
    request_id: str
    actor: str  # such as user:ada, service:ci, node:<id>, operator:token
    source: str  # address of the caller
    action: str  # such as compute:reservation:create
    object: str  # the id or name that it is about
    decision: str  # allow or deny
    policies: str = "[]"  # names of those that decided
    outcome: str  # the problem's code, or OK
    reason: str | None = None  # a person's words
    before: str | None = None  # versions or documents of what was changed
    after: str | None = None
    seq: int | None = Field(default=None, unique=True, sa_type=BigInteger)
    former_hash: str | None = None
    hash: str | None = Field(default=None, unique=True)


METADATA: Final = tables.METADATA
"""Of all tables: whoever takes it from here has those of both modules."""


def _table(name: str) -> Table:
    return METADATA.tables[name]


QUOTA: Final = _table("quota")
CHARGE: Final = _table("charge")
USAGE: Final = _table("usage")
TOKEN: Final = _table("token")
ACCESS_POLICY: Final = _table("access_policy")
JOIN_TOKEN: Final = _table("join_token")
AUDIT: Final = _table("audit")
