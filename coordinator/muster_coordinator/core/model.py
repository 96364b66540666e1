"""The values that every decision is made of: atoms, nodes, requests, reservations, allocations, policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final, Literal

from muster_shared.devices import MILLI_PER_GPU, DeviceClass, Topology
from muster_shared.time import MS_MAX, Window

Intent = Literal["schedulable", "cordoned", "draining"]

OnMemberLoss = Literal["notify", "replace", "release"]
"""What an active gang wants when a member is surely dead. Source: design, section 7, "Active gangs"."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A pool's policy. Durations are milliseconds. Source of the defaults: design, section 12."""

    top_n: int = 1  # candidates of equal rank among which chance decides
    max_attempts: int = 5  # planning rounds after a lost race
    turnaround_ms: int = 0
    bind_timeout_ms: int = 120_000  # from the moment the atoms are free
    unbind_timeout_ms: int = 180_000
    kill_grace_ms: int = 10_000  # between TERM and KILL for what a tenant leaves behind
    reconnect_grace_ms: int = 120_000  # silence is not counted before a new epoch is this old
    heartbeat_ms: int = 5_000
    unreachable_after_beats: int = 4
    silence_repair_after_ms: int = 120_000
    retry_interval_ms: int = 30_000
    repair_lead_ms: int = 900_000
    repair_horizon_ms: int = 86_400_000
    unhealthy_after_ms: int = 30_000  # a soft sign must last as long before anything is moved for it ...
    healthy_after_ms: int = 600_000  # ... and be gone as long before its node takes over for others
    grant_ms: int = 300_000  # the shortest grant of a bind order that can be preempted
    max_duration_ms: int = 90 * 86_400_000
    look_ahead_ms: int = 366 * 86_400_000
    series_ahead_ms: int = 28 * 86_400_000  # how far ahead the occurrences of a series are booked
    imex_channels: int = 0  # IMEX channels of each fabric that are handed out, from 1 on; 0 where hosts run no IMEX
    usable_gap_ms: int = 900_000  # a shorter gap between two bookings is of use to nobody
    # Weights of the ranks of a gang: heavier ones are compared first, equal ones added up, 0 is not asked.
    rank_tightest: int = 40
    rank_whole_domain: int = 30
    rank_usable_gaps: int = 20
    rank_spare: int = 10
    # Weights of the scores of a node, which are added up: each is more than the sum of those after it.
    score_packing: int = 40
    score_soundness: int = 18
    score_no_recent_fault: int = 8
    score_fabric_kept: int = 4
    score_snugness: int = 1

    @property
    def unreachable_after_ms(self) -> int:
        """Silence after which a node gets no new work."""
        return self.unreachable_after_beats * self.heartbeat_ms


_POLICY_POSITIVE: Final = frozenset(
    {"top_n", "max_attempts", "heartbeat_ms", "unreachable_after_beats", "max_duration_ms"}
)
"""Policy values whose zero would stop the pool: no candidate, no round, no node ever heard from."""


def policy_faults(values: Mapping[str, object]) -> dict[str, str]:
    """Return what is wrong with chosen policy values, by their names; empty where they make a policy."""
    known = [one.name for one in fields(Policy)]
    faults = {name: f"no such value; there are {', '.join(known)}" for name in values if name not in known}
    for name, value in values.items():
        least = 1 if name in _POLICY_POSITIVE else 0
        number = value if isinstance(value, int) and not isinstance(value, bool) else -1
        if name not in faults and not least <= number <= MS_MAX:
            faults[name] = f"an integer, at least {least}, and no longer than the calendar"
    return faults


@dataclass(frozen=True, slots=True)
class Atom:
    """The smallest bookable thing of a node; `number` is its bit in every mask."""

    number: int
    kind: DeviceClass
    device: str  # the UUID by which its tenant reaches it: of the GPU, or of the MIG instance
    model: str
    memory_mib: int
    island: int  # GPUs of one number reach each other over NVLink
    numa: int | None = None  # the NUMA node of its GPU; None where the host does not say
    profile: str = ""  # of a MIG instance, such as 1g.10gb
    milli: int = MILLI_PER_GPU  # how much of a GPU it is
    gpu: str = ""  # the UUID of the physical GPU that it is, or is part of


NOBODY: Final = ""
"""Who books atoms whose release is not confirmed: they are free for nobody, the reservation that had them included."""


@dataclass(frozen=True, slots=True)
class Booked:
    """Atoms that are taken for a while, by whom."""

    start_ms: int
    end_ms: int
    mask: int
    reservation_id: str


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A window in which a node belongs to whoever mends it. All of its atoms are booked for it besides."""

    id: str
    window: Window


@dataclass(frozen=True, slots=True)
class Entry:
    """Devices of one kind that each node gives."""

    kind: DeviceClass
    count: int  # atoms, at least 1
    topology: Topology = "any"  # what they share: nothing, one NVLink island, one NUMA node
    model: str | None = None  # a word of the model's name, any case
    memory_mib: int = 0  # at least this much on each device
    profile: str | None = None  # of MIG instances; None for any


@dataclass(frozen=True, slots=True)
class Shape:
    """What one node of a request must give. Equal shapes are refused for equal reasons, so they are planned once."""

    entries: tuple[Entry, ...]  # at least one; no atom serves two
    selector: tuple[tuple[str, str], ...] = ()  # labels that the node must have, sorted


Agreed = tuple[tuple[str, str], ...]
"""Labels on which nodes agree, as `(key, value)`, in the order of the keys that were asked for."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """On which labels the nodes of a gang agree."""

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()  # narrowest first: one of them where that can be had, none where not
    segment_key: str | None = None  # each segment of the gang has one value of it ...
    segment_size: int = 0  # ... and this many nodes; it divides the gang

    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Return the keys to agree on, from the most that was asked to the least that will do."""
        return (*((*self.required, key) for key in self.preferred), self.required)


@dataclass(frozen=True, slots=True)
class Request:
    """A gang of `size` nodes that each give `shape` for one window."""

    shape: Shape
    size: int
    grouping: Grouping
    window: Window


class State(StrEnum):
    """Where a reservation is in its life. Source: design, section 3."""

    PENDING = "pending"
    PLACED = "placed"
    BINDING = "binding"
    ACTIVE = "active"
    ENDING = "ending"
    ENDED = "ended"


class EndReason(StrEnum):
    """Why a reservation ended."""

    COMPLETED = "Completed"
    RELEASED = "Released"
    CANCELLED = "Cancelled"
    PREEMPTED = "Preempted"
    EXPIRED = "Expired"
    LOST = "Lost"


class BindState(StrEnum):
    """What is known of one allocation at its node."""

    RESERVED = "reserved"  # the node has not been told
    BINDING = "binding"  # told, not confirmed; `failed` and `blocked` reports keep it here with their reason
    BOUND = "bound"  # confirmed by its node for its generation
    UNBINDING = "unbinding"  # dropped, release not confirmed: the atoms are nobody's
    RELEASED = "released"  # confirmed released, or never told
    FENCED = "fenced"  # an operator attested it, or grant and guard say so
    LOST = "lost"  # the node restarted under it


@dataclass(frozen=True, slots=True)
class Member:
    """One allocation: a reservation on one node, with that node's soundness as seen now."""

    allocation_id: str
    node_id: str
    mask: int
    generation: int
    bind: BindState
    agreed: Agreed = ()  # labels that its node had when it was booked, and must keep
    ordered_ms: int | None = None  # when the node was first told; None while it was not
    blocked: bool = False  # its atoms are not free yet: somebody else's release is not confirmed
    reason: str | None = None  # what the node last said against binding


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation with its live members, as the lifecycle and the repair see it."""

    id: str
    tenant_id: str
    pool_id: str
    state: State
    shape: Shape
    size: int
    grouping: Grouping
    start_ms: int  # what was asked; for pending work that begins late, see `booked_window`
    duration_ms: int
    fixed_end_ms: int | None  # set when `end` was given: a late start does not move it
    latest_start_ms: int | None
    generation: int
    agreed: Agreed = ()  # what the whole gang was booked with: its level of `grouping`, and the values
    members: tuple[Member, ...] = ()
    binding_since_ms: int | None = None
    end_reason: EndReason | None = None  # decided on entering `ending`
    created_ms: int = 0
    repairing: bool = False  # pending because a repair found nothing
    on_member_loss: OnMemberLoss = "notify"
    activated_ms: int | None = None  # when it was first active: a gang that binds after that was interrupted
    protected_until_ms: int | None = None
    spot: bool = False  # uncharged, never protected

    @property
    def window(self) -> Window:
        """The booked, or asked, window."""
        return Window(self.start_ms, self.start_ms + self.duration_ms)

    def window_from(self, now_ms: int) -> Window | None:
        """Return what a placement made now books, or None when it is too late for any.

        The asked window while its start is ahead; from now on once it has passed, for the full duration, or only up to
        an `end` that was given. Source: design, section 3, "Calendar".
        """
        start_ms = max(self.start_ms, now_ms)
        if self.latest_start_ms is not None and start_ms > max(self.latest_start_ms, self.start_ms):
            return None
        end_ms = self.fixed_end_ms if self.fixed_end_ms is not None else start_ms + self.duration_ms
        return Window(start_ms, end_ms) if start_ms < end_ms else None

    def request(self, window: Window) -> Request:
        """Return the request that this reservation makes of the planner for `window`."""
        return Request(self.shape, self.size, self.grouping, window)


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the planner sees it."""

    id: str
    name: str
    labels: Mapping[str, str]
    atoms: tuple[Atom, ...]
    intent: Intent = "schedulable"
    silent_since_ms: int | None = None  # None while its agent is heard from
    leased: bool = False
    held: Mapping[str, int] = field(default_factory=dict[str, int])  # cause -> mask of the atoms it holds
    fault_ms: int = 0  # when its agent last raised a hold; 0 for never
    turned_ms: int = 0  # when it last turned bad or silent; 0 for not within a day
    sound_since_ms: int = 0  # when a bad sign of it last went; 0 for never
    flapping_until_ms: int = 0  # it turned bad too often within a day, and that is over then; 0 where it did not
    home_domain: str = ""  # the fabric domain that it shows, or showed last; empty for none
    booked: tuple[Booked, ...] = ()  # sorted by start
    maintenance: tuple[MaintenanceWindow, ...] = ()  # not over yet, sorted by start

    @property
    def reachable(self) -> bool:
        """Is the agent reporting?"""
        return self.silent_since_ms is None
