"""An agent's machine on a disk and a host in memory, which a test can kill at any act."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from muster_agent.core import machine
from muster_agent.core.desired import Desired, Fence, Order
from muster_agent.core.outcomes import BACKOFF_MS, after
from muster_agent.core.records import (
    Act,
    Evict,
    Facts,
    Forget,
    Grant,
    Look,
    Outcome,
    Record,
    Reset,
    Revoke,
    Save,
    SaveFence,
    State,
    Touch,
    Verify,
    Warn,
)
from muster_agent.core.statuses import statuses
from muster_shared.wire import AssignmentStatus, Hold

HOUR_MS = 3_600_000


class Killed(Exception):  # noqa: N818 - what happens to the process, not an error of it
    """The process died here."""


def order(
    allocation_id: str = "alloc_a",
    devices: str = "GPU-0 GPU-1",
    *,
    generation: int = 1,
    start_boot_ms: int = 0,
    end_boot_ms: int = 12 * HOUR_MS,
    **more: Any,
) -> Order:
    fields: dict[str, Any] = {
        "allocation_id": allocation_id,
        "reservation_id": f"rsv_{allocation_id[-1]}",
        "generation": generation,
        "tenant_id": "acme",
        "devices": tuple(devices.split()),
        "start_boot_ms": start_boot_ms,
        "end_boot_ms": end_boot_ms,
        "end_unix_ms": 1_800_000_000_000 + end_boot_ms,
    }
    return Order(**{**fields, **more})


def desired(rev: int, orders: Iterable[Order] = (), *, epoch: int = 1, node: str = "node_1", sent: int = 0) -> Desired:
    return Desired(Fence("cluster_1", node, epoch, rev), {item.allocation_id: item for item in orders}, sent)


FACTS = Facts(frozenset(f"GPU-{n}" for n in range(4)))
A, B = order("alloc_a"), order("alloc_b")  # both want the same two devices
ON_GPU_1 = Hold(device="GPU-1", cause="xid", code=48, since_ms=0, clears_by="operator")
AFTER_BACKOFF_MS = BACKOFF_MS[-1]


@dataclass
class World:
    """Disk and host outlive the process; `state` is the process."""

    boot_id: str = "boot-1"
    boot_ms: int = 1_000
    facts: Facts | None = FACTS
    records: dict[str, Record] = field(default_factory=dict)
    fence: Fence = field(default_factory=Fence)
    exposed: dict[str, Record] = field(default_factory=dict)  # what a tenant can reach, by allocation id
    holding: dict[str, Record] = field(default_factory=dict)  # what its processes still hold
    stubborn: set[str] = field(default_factory=set)  # allocations whose processes TERM does not end
    foreign: set[str] = field(default_factory=set)  # devices on which somebody computes whom nobody let in
    resets: list[str] = field(default_factory=list)  # GPUs that were reset
    warned: list[str] = field(default_factory=list)  # allocations that were given notice
    fails: Callable[[Act], str | None] = lambda _act: None
    acts: list[Act] = field(default_factory=list)
    live: State | None = None

    @property
    def state(self) -> State:
        if self.live is None:
            awake = machine.awake(self.boot_id, self.records, self.fence)
            joined = machine.joined(awake, "cluster_1", "node_1")
            assert isinstance(joined, State)
            self.live = joined
        return self.live

    def take(self, wanted: Desired) -> str | None:
        taken = machine.take(self.state, wanted)
        if isinstance(taken, str):
            return taken
        self.live = taken
        return None

    def step(self) -> Act | None:
        act = machine.next_act(self.state, self.facts, self.boot_ms)
        if act is None:
            return None
        self.acts.append(act)
        trouble = self.fails(act)
        if trouble is None:
            self.perform(act)
        self.live = after(self.state, act, Outcome(self.boot_ms, trouble or self._look(act)))
        self.check()
        return act

    def settle(self, acts_max: int = 200) -> None:
        """Act until nothing is due now."""
        for _ in range(acts_max):
            if self.step() is None:
                return
        raise AssertionError(f"no rest after {acts_max} acts, the last: {self.acts[-3:]}")

    def perform(self, act: Act) -> None:
        if isinstance(act, SaveFence | Save | Forget):
            self._write(act)
        else:
            self._touch(act)

    def _write(self, act: SaveFence | Save | Forget) -> None:
        match act:
            case SaveFence(fence):
                self.fence = fence
            case Save(record):
                self.records[record.allocation_id] = record
            case Forget(allocation_id):
                self.records.pop(allocation_id, None)

    def _touch(self, act: Look | Touch) -> None:
        match act:
            case Grant(record):
                self.exposed[record.allocation_id] = self.holding[record.allocation_id] = record
            case Revoke(record):
                self.exposed.pop(record.allocation_id, None)
            case Evict(record):
                if act.force or record.allocation_id not in self.stubborn:
                    self.holding.pop(record.allocation_id, None)
            case Reset():
                self.resets += act.gpus
            case Warn(record):
                self.warned.append(record.allocation_id)
            case Verify() | Look():
                pass

    def _look(self, act: Act) -> str | None:
        match act:
            case Verify(record):
                there = self.exposed.get(record.allocation_id)
                same = there is not None and there.end_unix_ms == record.end_unix_ms
                return None if same else "gone or different"
            case Look():
                held = {uuid for record in self.holding.values() for uuid in record.devices} | self.foreign
                return f"foreignProcess: on {found[0]}" if (found := sorted(held & set(act.devices))) else None
            case Evict(record) if record.allocation_id in self.holding:
                return "releaseBlocked: pid 7" if act.force else "ending: pid 7"
            case _:
                return None

    def kill(self) -> None:
        """End the process; disk and artefacts stay."""
        self.live = None

    def reboot(self, boot_id: str, *, artefacts_stay: bool = False) -> None:
        self.kill()
        self.boot_id, self.boot_ms = boot_id, 500
        self.holding.clear()
        if not artefacts_stay:
            self.exposed.clear()

    def statuses(self) -> list[AssignmentStatus]:
        return statuses(self.state, self.facts, self.boot_ms)

    def told(self) -> dict[str, str]:
        """Allocation id -> bind state, as a report would say."""
        return {status.allocation_id: status.state for status in self.statuses()}

    def check(self) -> None:
        """What must hold after every act."""
        seen: dict[str, bool] = {}  # device -> all that have it share it
        for record in {**self.exposed, **self.holding}.values():
            for uuid in record.devices:
                shares = uuid in record.shared
                assert uuid not in seen or (shares and seen[uuid]), f"{uuid} is exposed twice: {self.exposed}"
                seen[uuid] = shares
        told = {status.allocation_id for status in self.statuses() if status.state in {"binding", "bound", "unbinding"}}
        assert self.exposed.keys() | self.holding.keys() <= told | self._lost(), (
            "an exposed device is missing from the report"
        )

    def _lost(self) -> set[str]:
        return {status.allocation_id for status in self.statuses() if status.state == "lostByReboot"}


def bound(*orders: Order) -> World:
    made = World()
    assert made.take(desired(1, orders)) is None
    made.settle()
    assert set(made.told().values()) == {"bound"}
    return made


def once(kind: type[Act], state: str | None = None) -> Callable[[Act], str | None]:
    left = [1]

    def fails(act: Act) -> str | None:
        hit = isinstance(act, kind) and (not isinstance(act, Save) or state in {None, act.record.state})
        if hit and left:
            left.pop()
            return "no space left on device"
        return None

    return fails
