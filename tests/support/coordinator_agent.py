"""A scripted agent: it speaks the wire's messages to the coordinator's services, and binds as the script says."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol

from muster_shared.codec import encode
from muster_shared.wire import (
    FABRIC_DOMAIN,
    Assignment,
    AssignmentStatus,
    BindState,
    DesiredState,
    Fabric,
    Gpu,
    Hold,
    Inventory,
    MigInstance,
    Monitoring,
    Report,
    ReportAnswer,
)

Refusal = tuple[BindState, str]

MIG_SLICES = 7  # compute slices of an H100


class Coordinator(Protocol):
    """The three calls of an agent."""

    async def rev_of(self, node_id: str) -> int: ...

    async def desired_of(self, node_id: str) -> DesiredState: ...

    async def take_report(self, node_id: str, report: Report) -> ReportAnswer: ...


def inventory_of(
    name: str,
    gpus: int,
    fabric: str | None,
    lost: Collection[int] = (),
    mig: Mapping[int, Sequence[MigInstance]] | None = None,
) -> Inventory:
    """Describe a node of equal GPUs, in islands of eight; without a fabric it says that it is settling.

    `mig` names the GPUs in MIG mode, by number, and their instances.
    """
    split = mig or {}
    return Inventory(
        gpus=[
            Gpu(
                uuid=f"GPU-{name}-{number:04d}",
                pci=f"0000:{number:02x}:00",
                model="NVIDIA H100 80GB HBM3",
                memory_mib=81_559,
                island=number // 8,
                seen=number not in lost,
                fabric=Fabric(state="completed"),
                mig_mode=number in split,
                mig_slices_max=MIG_SLICES,
                mig=list(split.get(number, ())),
            )
            for number in range(gpus)
        ],
        labels={} if fabric is None else {FABRIC_DOMAIN: fabric},
        fabric_reason="settling" if fabric is None else None,
        monitoring=Monitoring(nvml="ok", events="ok", kernel_log="ok"),
        hostname=name,
    )


@dataclass(eq=False)
class ScriptedAgent:
    """One node. What a test may set says how it behaves from now on."""

    name: str
    node_id: str
    coordinator: Coordinator
    gpus: int = 8
    fabric: str | None = None
    lost: tuple[int, ...] = ()
    mig: dict[int, list[MigInstance]] = field(default_factory=dict)  # GPUs in MIG mode
    holds: list[Hold] = field(default_factory=list)
    is_up: bool = True  # heard from, and hearing
    confirms: bool = True  # says "bound"; otherwise it stays at "binding" for ever
    refusal: Refusal | None = None  # what it says instead of binding
    lets_go: bool = True  # confirms a release; otherwise it stays at "unbinding"
    guard_armed: bool = False
    boot: int = 1
    seq: int = 0
    applied_rev: int = 0
    has: dict[str, tuple[Assignment, BindState]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)  # every bind order, in order
    _known: str = ""  # hash of the inventory that the coordinator has

    async def turn(self) -> None:
        """Fetch what is wanted, do it, and report: what an agent does at each heartbeat."""
        if self.is_up:
            if await self.coordinator.rev_of(self.node_id) > self.applied_rev:
                await self.fetch()
            await self.report()

    async def fetch(self) -> DesiredState:
        """Fetch the desired state and obey it."""
        desired = await self.coordinator.desired_of(self.node_id)
        self.obey(desired)
        return desired

    def obey(self, desired: DesiredState) -> None:
        """Do what a desired state says, as the script allows."""
        wanted = {assignment.allocation_id: assignment for assignment in desired.assignments}
        for allocation_id in self.has.keys() - wanted.keys():
            self.has[allocation_id] = (self.has[allocation_id][0], "unbinding")
        for allocation_id, assignment in wanted.items():
            if allocation_id not in self.has:
                self.told.append(allocation_id)
                self.has[allocation_id] = (assignment, "binding")
        self.applied_rev = desired.rev

    def act(self) -> None:
        """Finish what is under way, as far as the script lets it."""
        for allocation_id, (assignment, state) in list(self.has.items()):
            if state == "unbinding" and self.lets_go:
                del self.has[allocation_id]
            elif state not in {"bound", "unbinding"}:
                turned: BindState = self.refusal[0] if self.refusal else "bound" if self.confirms else "binding"
                self.has[allocation_id] = (assignment, turned)

    async def report(self) -> ReportAnswer:
        """Tell everything, the inventory only where it is not known."""
        self.act()
        sent = self.next_report()
        answer = await self.coordinator.take_report(self.node_id, sent)
        if answer.accepted and sent.inventory is not None:
            self._known = sent.inventory_hash
        if answer.want_inventory:
            self._known = ""
        return answer

    def next_report(self, **changes: Any) -> Report:
        """Make the next report; `changes` are fields that say something else."""
        self.seq += 1
        inventory = inventory_of(self.name, self.gpus, self.fabric, self.lost, self.mig)
        inventory_hash = sha256(encode(inventory)).hexdigest()
        reason = self.refusal[1] if self.refusal else None
        fields: dict[str, Any] = {
            "boot_id": f"{self.name}-boot-{self.boot}",
            "seq": self.seq,
            "agent_version": "1",
            "applied_rev": self.applied_rev,
            "inventory_hash": inventory_hash,
            "inventory": None if inventory_hash == self._known else inventory,
            "holds": self.holds,
            "assignments": [
                AssignmentStatus(
                    allocation_id=allocation_id,
                    generation=assignment.generation,
                    state=state,
                    reason=None if state == "bound" else reason,
                    guard_armed=self.guard_armed,
                )
                for allocation_id, (assignment, state) in self.has.items()
            ],
        }
        return Report(**{**fields, **changes})

    def hold(self, number: int, cause: str = "xid", code: int = 79) -> None:
        """Find a fault on one GPU."""
        self.holds.append(
            Hold(
                device=f"GPU-{self.name}-{number:04d}",
                cause=cause,
                code=code,
                since_ms=1,
                clears_by="nodeRebootVerified",
            )
        )

    def split(self, number: int, profiles: str = "1g.10gb " * MIG_SLICES, *, turn: int = 1) -> None:
        """Switch one GPU to MIG mode; instances that are made in another turn have other UUIDs."""
        self.mig[number] = [
            MigInstance(
                uuid=f"MIG-{self.name}-{number}-{at:02d}-{turn}",
                profile=profile,
                slices=int(profile[0]),
                memory_mib=10_240 * int(profile[0]),
            )
            for at, profile in enumerate(profiles.split())
        ]

    def reboot(self) -> None:
        """Restart the host: nothing is bound any more, and a new boot counts its reports from the beginning."""
        self.boot += 1
        self.seq = 0
        self.has.clear()
