"""The tables. Instants are integer milliseconds UTC, amounts milli-GPU, documents JSON text written by the codec.

The guard that lets no two live bookings of an atom overlap is not here: each engine has its own, in the migration.
"""

from sqlalchemy import BigInteger, CheckConstraint, Index, Integer, MetaData, Table, UniqueConstraint
from sqlmodel import Field, SQLModel

SQLModel.metadata.naming_convention = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
).naming_convention


class Pool(SQLModel, table=True):
    """Nodes that are booked together. `version` rises with every change that a plan could see."""

    id: str = Field(primary_key=True)
    name: str = Field(unique=True)
    policy: str  # only what differs from the defaults
    version: int = Field(default=0, sa_type=BigInteger)
    freed_version: int = Field(default=0, sa_type=BigInteger)  # at which something changed that pending work waits for
    storm: str = "{}"  # what the storm brake has announced: its mode by topology domain, "" for the whole pool
    moves: str = "[]"  # instants of the repairs of the last minutes, for the brake's rate
    heard_again_ms: int = Field(default=0, sa_type=BigInteger)  # when the last silence of every node at once ended
    created_ms: int = Field(sa_type=BigInteger)


class Lease(SQLModel, table=True):
    """Who runs a pool's background work. `epoch` rises with each new holder and fences the old one."""

    pool_id: str = Field(primary_key=True, foreign_key="pool.id")
    epoch: int = Field(sa_type=BigInteger)
    holder: str
    until_ms: int = Field(sa_type=BigInteger)
    since_ms: int = Field(sa_type=BigInteger)  # when this epoch began


class Cluster(SQLModel, table=True):
    """One row: who this coordinator is, whatever replica answers."""

    id: str = Field(primary_key=True)
    access_version: int = Field(default=0, sa_type=BigInteger)  # rises with every change of the operators' policies
    created_ms: int = Field(sa_type=BigInteger)


class Node(SQLModel, table=True):
    """A GPU host. Three independent facts: heard from, what the operator intends, leased."""

    __table_args__ = (
        Index("ix_node_pool_id_changed_version", "pool_id", "changed_version"),
        Index("ix_node_pool_id_last_report_ms", "pool_id", "last_report_ms"),
    )
    id: str = Field(primary_key=True)
    pool_id: str = Field(foreign_key="pool.id")
    name: str = Field(unique=True)
    machine_id: str = Field(unique=True)
    token_hash: str = Field(unique=True)  # SHA-256 of the node's credential
    former_token_hash: str | None = None  # of the one before, good for a while after a rotation ...
    former_until_ms: int | None = Field(default=None, sa_type=BigInteger)  # ... until then
    credential_ms: int = Field(default=0, sa_type=BigInteger)  # when the credential was given
    credential_revoked_ms: int | None = Field(default=None, sa_type=BigInteger)
    intent: str = "schedulable"
    leased: bool = False
    silent: bool = False  # what was last announced about it; the truth is `last_report_ms` and the clock
    operator_labels: str = "{}"
    inventory: str | None = None  # wire.Inventory
    inventory_hash: str | None = None
    agent_version: str | None = None
    boot_id: str | None = None
    past_boots: str = "[]"  # boot ids that a late report may still carry
    seq: int = Field(default=0, sa_type=BigInteger)  # of the newest report of this boot
    applied_rev: int = Field(default=0, sa_type=BigInteger)
    rev: int = Field(default=1, sa_type=BigInteger)  # of the desired state; never falls
    version: int = 0  # of its events
    changed_version: int = Field(
        default=0, sa_type=BigInteger
    )  # of the pool, when a plan could last see a change of it
    fault_ms: int = Field(default=0, sa_type=BigInteger)  # when its agent last raised a hold
    flips: str = "[]"  # instants of the last day at which it turned bad or silent, rising
    sound_since_ms: int = Field(default=0, sa_type=BigInteger)  # when a bad sign of it last went
    home_domain: str | None = None  # the fabric.domain that it last showed: where it belongs while it shows none
    drained_ms: int | None = Field(default=None, sa_type=BigInteger)  # when it was found empty, since it is draining
    slots: str = "{}"  # shares that a GPU is cut into, by its UUID, or by "" for all of the node
    last_report_ms: int | None = Field(default=None, sa_type=BigInteger)
    removed_ms: int | None = Field(default=None, sa_type=BigInteger)  # its history stays; name and machine id are free
    created_ms: int = Field(sa_type=BigInteger)


class Atom(SQLModel, table=True):
    """The smallest bookable thing. Numbered for each node, append-only: a number is never given to another device."""

    node_id: str = Field(primary_key=True, foreign_key="node.id")
    number: int = Field(primary_key=True)
    kind: str
    device: str  # the UUID that its tenant is given: of the GPU, or of the MIG instance
    gpu: str  # the UUID of the physical GPU
    part: int = 0  # which share of the GPU a slot is
    profile: str = ""  # of a MIG instance
    milli: int = 1_000
    model: str
    memory_mib: int = Field(sa_type=BigInteger)  # as an agent says, and none is trusted to stay below 2**31
    island: int = Field(sa_type=BigInteger)
    numa: int | None = Field(default=None, sa_type=BigInteger)
    seen: bool  # False where the device is lost: it keeps its number
    listed: bool = True  # False once its node no longer expects it: kept for what was booked on it


class Hold(SQLModel, table=True):
    """Why an atom, or a whole node, may not be booked."""

    node_id: str = Field(primary_key=True, foreign_key="node.id")
    device: str = Field(primary_key=True)  # UUID; empty for the whole node
    cause: str = Field(primary_key=True)
    code: int = Field(primary_key=True, sa_type=BigInteger)  # 0 where the cause has none
    since_ms: int = Field(sa_type=BigInteger)
    clears_by: str
    message: str | None = None
    clear_asked_ms: int | None = Field(default=None, sa_type=BigInteger)  # an operator's word, until the agent obeys


class Reservation(SQLModel, table=True):
    """One tenant's request and its life."""

    __table_args__ = (
        UniqueConstraint("tenant_id", "idempotency_key"),
        UniqueConstraint("series_id", "occurrence_ms"),
        Index("ix_reservation_state_start_ms", "state", "start_ms"),
        Index("ix_reservation_pool_id_wait_key_created_ms", "pool_id", "wait_key", "created_ms"),
        Index("ix_reservation_pool_id_check_due_ms", "pool_id", "check_due_ms"),
        CheckConstraint("size >= 1", name="size"),
        CheckConstraint("duration_ms >= 1", name="duration"),
    )
    id: str = Field(primary_key=True)
    tenant_id: str
    pool_id: str = Field(foreign_key="pool.id")
    name: str | None = None
    state: str
    end_reason: str | None = None
    condition: str | None = None  # service.bodies.Condition while pending, where it is of this reservation alone
    wait_key: str | None = None  # while pending: with which others it waits for the same thing
    risks: str = "[]"  # what is wrong with its members, and since when; empty when sound
    request: str  # what was asked, as the API shows it
    shape: str  # core.model.Shape
    size: int
    grouping: str  # core.model.Grouping
    agreed: str = "[]"  # labels on which the whole gang was booked
    start_ms: int = Field(sa_type=BigInteger)
    duration_ms: int = Field(sa_type=BigInteger)
    fixed_end_ms: int | None = Field(default=None, sa_type=BigInteger)
    latest_start_ms: int | None = Field(default=None, sa_type=BigInteger)
    generation: int = 0
    version: int = 0
    seed: int = Field(default=0, sa_type=BigInteger)
    check_due_ms: int | None = Field(default=None, sa_type=BigInteger)
    repairing: bool = False
    binding_since_ms: int | None = Field(default=None, sa_type=BigInteger)
    activated_ms: int | None = Field(default=None, sa_type=BigInteger)
    protected_until_ms: int | None = Field(default=None, sa_type=BigInteger)
    ended_ms: int | None = Field(default=None, sa_type=BigInteger)
    on_member_loss: str = "notify"  # core.model.OnMemberLoss
    binding: str = "devices"  # or "node": whole machines
    spot: bool = False  # uncharged, never protected
    budget: str | None = None
    min_runtime_ms: int | None = Field(default=None, sa_type=BigInteger)
    resumable: bool = False
    priority: int = 0  # inside its tenant's queue
    leave_by_ms: int | None = Field(default=None, sa_type=BigInteger)  # the deadline of a preemption notice
    leave_for: str | None = None  # the reservation that takes its place
    preemptions: int = 0  # how often it had to leave
    series_id: str | None = Field(default=None, foreign_key="series.id")
    occurrence_ms: int | None = Field(default=None, sa_type=BigInteger)  # when its series' rule has it begin
    created_ms: int = Field(sa_type=BigInteger)
    idempotency_key: str | None = None
    body_hash: str  # of the request as it was sent


class Series(SQLModel, table=True):
    """A reservation that comes again by a rule. Each occurrence is a reservation of its own, made ahead of its time."""

    __table_args__ = (
        UniqueConstraint("tenant_id", "idempotency_key"),
        Index("ix_series_pool_id_state_made_until_ms", "pool_id", "state", "made_until_ms"),
    )
    id: str = Field(primary_key=True)
    tenant_id: str
    pool_id: str = Field(foreign_key="pool.id")
    name: str | None = None
    state: str  # active, ended
    end_reason: str | None = None  # Completed, Cancelled
    rule: str  # core.series.Recurrence, in three columns
    zone: str
    first: str
    request: str  # service.series_bodies.SeriesRequest
    duration_ms: int = Field(sa_type=BigInteger)
    skipped: str = "[]"  # occurrences that nobody wants, instants rising
    made_until_ms: int = Field(sa_type=BigInteger)  # every occurrence before this has been made, skipped or missed
    until_ms: int | None = Field(default=None, sa_type=BigInteger)  # no occurrence from then on, once that is known
    version: int = 0
    created_ms: int = Field(sa_type=BigInteger)
    ended_ms: int | None = Field(default=None, sa_type=BigInteger)
    idempotency_key: str | None = None
    body_hash: str


class Maintenance(SQLModel, table=True):
    """A window in which nodes belong to whoever mends them."""

    __table_args__ = (CheckConstraint("start_ms < end_ms", name="window"),)
    id: str = Field(primary_key=True)
    pool_id: str = Field(foreign_key="pool.id")
    reason: str
    state: str  # declared, blocked, booked, begun, ended, cancelled
    start_ms: int = Field(sa_type=BigInteger)
    end_ms: int = Field(sa_type=BigInteger)
    version: int = 0
    created_ms: int = Field(sa_type=BigInteger)
    ended_ms: int | None = Field(default=None, sa_type=BigInteger)


class MaintenanceNode(SQLModel, table=True):
    """One node of a maintenance window. Its booking stands once nobody else's is in the way."""

    __tablename__ = "maintenance_node"  # pyright: ignore[reportAssignmentType] - as SQLModel documents it
    __table_args__ = (Index("ix_maintenance_node_node_id", "node_id"),)
    maintenance_id: str = Field(primary_key=True, foreign_key="maintenance.id")
    node_id: str = Field(primary_key=True, foreign_key="node.id")
    booked: bool = False  # False while bookings that could not be moved are in its window


class Wait(SQLModel, table=True):
    """What pending reservations of one shape and window wait for: one refusal answers for all of them."""

    pool_id: str = Field(primary_key=True, foreign_key="pool.id")
    key: str = Field(primary_key=True)
    condition: str  # service.bodies.Condition


class Allocation(SQLModel, table=True):
    """One reservation on one node. `live` while it is a member of the gang; its id is never used again."""

    __table_args__ = (
        Index("ix_allocation_reservation_id", "reservation_id"),
        Index("ix_allocation_node_id_bind_state", "node_id", "bind_state"),
    )
    id: str = Field(primary_key=True)
    reservation_id: str = Field(foreign_key="reservation.id")
    node_id: str = Field(foreign_key="node.id")
    generation: int
    live: bool = True
    agreed: str = "[]"  # labels that its node had, its segment's included
    bind_state: str
    bind_reason: str | None = None
    ordered_ms: int | None = Field(default=None, sa_type=BigInteger)
    bound_ms: int | None = Field(default=None, sa_type=BigInteger)
    bound_boot: str | None = None
    grant_until_ms: int | None = Field(default=None, sa_type=BigInteger)
    guard_armed: bool = False
    dropped_ms: int | None = Field(default=None, sa_type=BigInteger)
    imex_channel: int | None = None  # of its fabric, while it is bound; the whole gang has the same one there
    overdue: bool = False  # its node has not confirmed the release in time, and that was announced
    dropped_rev: int | None = Field(default=None, sa_type=BigInteger)  # the node's revision that no longer has it


class Booking(SQLModel, table=True):
    """An allocation's atoms on its node over `[start_ms, end_ms)`, one row for each mask word it touches.

    Maintenance is in the same calendar: its holder is `<maintenance id>/<node id>` and its reservation its own id. The
    database refuses a live row whose mask shares a bit with an overlapping live row of the same node and word.
    """

    __table_args__ = (
        Index("ix_booking_node_id_end_ms", "node_id", "end_ms"),
        CheckConstraint("start_ms < end_ms", name="window"),
        CheckConstraint("mask > 0", name="mask"),
    )
    allocation_id: str = Field(primary_key=True)  # or whoever else holds the atoms: no foreign key for both
    word: int = Field(primary_key=True)
    node_id: str = Field(foreign_key="node.id")
    reservation_id: str
    mask: int = Field(sa_type=BigInteger)
    start_ms: int = Field(sa_type=BigInteger)
    end_ms: int = Field(sa_type=BigInteger)
    live: bool = True


class Event(SQLModel, table=True):
    """An immutable fact, written in the transaction that made it true. `seq` is given once it is committed."""

    __table_args__ = (UniqueConstraint("subject", "version"), UniqueConstraint("seq"))
    number: int | None = Field(default=None, primary_key=True, sa_type=BigInteger().with_variant(Integer(), "sqlite"))
    id: str = Field(unique=True)
    seq: int | None = Field(default=None, sa_type=BigInteger)
    type: str
    at_ms: int = Field(sa_type=BigInteger)
    pool_id: str | None = None
    subject: str
    version: int
    data: str


class Webhook(SQLModel, table=True):
    """Who outside is told of events, and how what is sent can be known as ours."""

    id: str = Field(primary_key=True)
    name: str = Field(unique=True)
    url: str
    secret: str  # base64, of which the receiver has a copy
    former_secret: str | None = None  # signs beside the new one while it is being changed
    types: str = "[]"  # event types or prefixes that end in `.`; none for all
    enabled: bool = True
    failing_since_ms: int | None = Field(default=None, sa_type=BigInteger)
    version: int = 0  # of its events
    created_ms: int = Field(sa_type=BigInteger)


class Delivery(SQLModel, table=True):
    """One event on its way to one receiver: the outbox. It is written when the event gets its place in the stream."""

    __table_args__ = (
        UniqueConstraint("webhook_id", "seq"),
        Index("ix_delivery_state_next_ms", "state", "next_ms"),
    )
    number: int | None = Field(default=None, primary_key=True, sa_type=BigInteger().with_variant(Integer(), "sqlite"))
    webhook_id: str = Field(foreign_key="webhook.id")
    seq: int = Field(sa_type=BigInteger)  # of the event
    state: str  # waiting, delivered, dead
    attempts: int = 0
    next_ms: int = Field(sa_type=BigInteger)
    error: str | None = None  # of the last attempt
    done_ms: int | None = Field(default=None, sa_type=BigInteger)


METADATA = SQLModel.metadata


def _table(name: str) -> Table:
    return METADATA.tables[name]


# The booking path speaks SQLAlchemy Core: a unit of work costs two to three times as much a commit.
POOL = _table("pool")
LEASE = _table("lease")
CLUSTER = _table("cluster")
NODE = _table("node")
ATOM = _table("atom")
HOLD = _table("hold")
RESERVATION = _table("reservation")
WAIT = _table("wait")
ALLOCATION = _table("allocation")
BOOKING = _table("booking")
EVENT = _table("event")
SERIES = _table("series")
MAINTENANCE = _table("maintenance")
MAINTENANCE_NODE = _table("maintenance_node")
WEBHOOK = _table("webhook")
DELIVERY = _table("delivery")
