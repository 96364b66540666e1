"""What a node is: a fold over readings that remembers every GPU it has seen and names their fabric with care."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import TypeAdapter

from muster_agent.core.fabric import Domain, domain_of
from muster_agent.core.findings import at_least
from muster_agent.core.readings import GpuReading, HostReading, KernelLogReading, NodeReading, one_line
from muster_agent.core.sighting import sighted
from muster_shared.codec import Count, Message, Text, dumps
from muster_shared.wire import FABRIC_DOMAIN, FabricReason, Gpu, Inventory, LabelValue, MigInstance, Monitoring

SETTLE_MS: Final = 5_000
"""Two equal good reads so far apart set `fabric.domain`: a fabric that comes up shows values that do not last."""

_LABEL_MAX: Final = 128  # the wire's LabelValue
_NOT_LABEL: Final = re.compile(r"[^A-Za-z0-9._:/ -]+")
_GPUS: Final = TypeAdapter(tuple[Gpu, ...])
_SETTLED: Final = TypeAdapter(LabelValue | None)


class _Fabric(Message):
    """What is kept of the fabric's last good reading."""

    domain: LabelValue
    since_boot_ms: Count
    boot_id: Text


@dataclass(frozen=True, slots=True)
class InventoryFold:
    """All that is known of the node's make-up. A restart keeps the GPUs, and in one boot the fabric's last reading."""

    gpus: tuple[Gpu, ...] = ()  # every expected GPU by PCI address, the absent ones with `seen` false
    inventory: Inventory | None = None  # None until the first reading
    replaced: tuple[str, ...] = ()  # UUIDs of all former GPUs, where this reading showed only others
    _settled: str | None = None  # the latest `fabric.domain`, which may be gone
    _candidate: Domain | None = None  # the domain of the latest reading, if that was good
    _candidate_boot_ms: int = 0  # when it was first read, with no other reading since
    _boot_id: str = ""  # of the boot that both are of

    @property
    def missing(self) -> tuple[str, ...]:
        """UUIDs of the GPUs that were seen before and are gone."""
        return tuple(gpu.uuid for gpu in self.gpus if not gpu.seen)

    @property
    def change(self) -> tuple[str, str] | None:
        """The domain that the node was in and the other one that it says now, from its first reading on."""
        if self._candidate is None or self._settled in {None, self._candidate.name}:
            return None
        return self._settled or "", self._candidate.name

    @property
    def hash(self) -> str:
        """The inventory's name on the wire: equal inventories have equal hashes. Empty before the first reading."""
        return inventory_hash(self.inventory) if self.inventory else ""

    def after(
        self, reading: NodeReading, host: HostReading, boot_ms: int, kernel_log: KernelLogReading
    ) -> "InventoryFold":
        """Fold one reading in.

        The label `fabric.domain` goes at the first reading that is not good and comes back by two equal ones.
        While NVML is down the GPUs stay as they were last seen: it is the eyes that are shut.

        Args:
            reading: Any reading, of a working NVML or not.
            host: The host, read once.
            boot_ms: Boot clock of the reading, in milliseconds; never falls from one reading to the next.
            kernel_log: The other source of faults.
        """
        gpus, verdict = self.gpus, self._verdict(reading)
        if reading.nvml == "ok":
            gpus = _merged(self.gpus, reading)
        now = {gpu.uuid for gpu in gpus}
        candidate = verdict if isinstance(verdict, Domain) else None
        is_equal = candidate == self._candidate and host.boot_id == self._boot_id
        since_ms = self._candidate_boot_ms if is_equal else boot_ms
        reason: FabricReason | None = None if isinstance(verdict, Domain) else verdict
        labels = _labels(gpus, self._driver_version(reading))
        if candidate and (self._labelled(candidate) or boot_ms - since_ms >= SETTLE_MS):
            labels[FABRIC_DOMAIN] = candidate.name
        elif candidate:
            reason = "settling"
        inventory = Inventory(
            gpus=list(gpus),
            labels=labels,
            fabric_reason=reason,
            monitoring=_monitoring(reading, kernel_log, _nameless(self.gpus, reading)),
            hostname=one_line(host.hostname),
            driver_version=self._driver_version(reading),
            cpus=host.cpus,
            memory_mib=host.memory_mib,
        )
        former = tuple(gpu.uuid for gpu in self.gpus)
        return replace(
            self,
            gpus=gpus,
            inventory=inventory,
            replaced=former if now.isdisjoint(former) else (),
            _settled=self.inventory.labels.get(FABRIC_DOMAIN, self._settled) if self.inventory else self._settled,
            _candidate=candidate,
            _candidate_boot_ms=since_ms,
            _boot_id=host.boot_id,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what a restart keeps, as a JSON document."""
        document: dict[str, Any] = {"gpus": _GPUS.dump_python(self.gpus, mode="json", by_alias=True, exclude_none=True)}
        if settled := self.inventory.labels.get(FABRIC_DOMAIN, self._settled) if self.inventory else self._settled:
            document["settled"] = settled
        if self._candidate:
            fabric = _Fabric(domain=self._candidate.name, since_boot_ms=self._candidate_boot_ms, boot_id=self._boot_id)
            document["fabric"] = fabric.model_dump(by_alias=True)
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "InventoryFold":
        """Go on after a restart: within one boot an equal reading confirms the label, in another it settles anew.

        Raises:
            ValueError: The document is not one that `to_dict` wrote.
        """
        gpus = _GPUS.validate_python(document.get("gpus", ()))
        settled = _SETTLED.validate_python(document.get("settled"))
        if "fabric" not in document:
            return cls(gpus, _settled=settled)
        fabric = _Fabric.model_validate(document["fabric"])
        return cls(
            gpus,
            _settled=settled,
            _candidate=Domain(fabric.domain),
            _candidate_boot_ms=fabric.since_boot_ms,
            _boot_id=fabric.boot_id,
        )

    def _verdict(self, reading: NodeReading) -> Domain | FabricReason:
        if reading.nvml != "ok":
            return "error"
        sighting = sighted(_places(self.gpus), reading.gpus)
        if sighting.missing or sighting.unidentified:
            return "gpuMissing"
        verdict = domain_of([gpu.fabric for gpu in sighting.answering.values()])
        # Registered with the fabric, and yet no memory can be reached through it.
        is_cut = any(gpu.peers_cut for gpu in sighting.answering.values())
        return "unhealthy" if is_cut and isinstance(verdict, Domain) else verdict

    def _labelled(self, domain: Domain) -> bool:
        return self.inventory is not None and self.inventory.labels.get(FABRIC_DOMAIN) == domain.name

    def _driver_version(self, reading: NodeReading) -> str | None:
        if reading.driver_version is not None:
            return one_line(reading.driver_version)
        return self.inventory.driver_version if self.inventory else None


def inventory_hash(inventory: Inventory) -> str:
    """Name an inventory by its content: SHA-256 over its JSON with sorted keys, as 64 hexadecimal digits."""
    document = inventory.model_dump(mode="json", by_alias=True, exclude_none=True)
    return hashlib.sha256(dumps(document)).hexdigest()


def _places(gpus: Sequence[Gpu]) -> dict[str, str]:
    return {gpu.uuid: gpu.pci for gpu in gpus}


def _merged(known: Sequence[Gpu], reading: NodeReading) -> tuple[Gpu, ...]:
    sighting = sighted(_places(known), reading.gpus)
    last = {gpu.uuid: gpu for gpu in known}
    merged: list[Gpu] = []
    for uuid, pci in sorted(sighting.expected.items(), key=lambda item: (item[1], item[0])):
        if told := sighting.answering.get(uuid):
            merged.append(_gpu(uuid, told))
        else:
            before = last.get(uuid) or Gpu(uuid=uuid, pci=pci, model="", memory_mib=0)
            merged.append(before.model_copy(update={"seen": False, "fabric": None}))
    return tuple(merged)


def _gpu(uuid: str, told: GpuReading) -> Gpu:
    health = told.memory_health
    return Gpu(
        uuid=uuid,
        pci=told.pci,
        model=one_line(told.model),
        memory_mib=told.memory_mib,
        island=told.island,
        numa=told.numa,
        fabric=told.fabric,
        mig_mode=told.mig_mode,
        mig_slices_max=told.mig_slices_max,
        mig=[
            MigInstance(uuid=one.uuid, profile=one.profile, slices=one.slices, memory_mib=one.memory_mib)
            for one in told.mig
        ],
        memory_health=health and health.model_copy(update={"corrected": at_least(health.corrected)}),
        links=told.links,
        links_down=list(told.links_down),
        persistence=told.persistence,
    )


def _labels(gpus: Sequence[Gpu], driver_version: str | None) -> dict[str, str]:
    labels = {"gpu.count": str(len(gpus))}
    models, sizes = {gpu.model for gpu in gpus}, {gpu.memory_mib for gpu in gpus}
    # A node of mixed GPUs has no one model: a label that is true of some of them would mislead a selector.
    if len(models) == 1 and (model := models.pop()):
        labels["gpu.model"] = _label_value(model)
    if len(sizes) == 1 and (size := sizes.pop()):
        labels["gpu.memoryMib"] = str(size)
    if driver_version:
        labels["driver.version"] = _label_value(driver_version)
    return labels


def _nameless(known: Sequence[Gpu], reading: NodeReading) -> str | None:
    """Say where GPUs are lost that have no UUID to be listed by."""
    places = sighted(_places(known), reading.gpus).unidentified
    return (
        "lost and never identified: " + ", ".join(f"GPU at {pci or 'unknown place'}" for pci in places)
        if places
        else None
    )


def _monitoring(reading: NodeReading, kernel_log: KernelLogReading, nameless: str | None) -> Monitoring:
    said = [text for text in (reading.message, nameless, kernel_log.message) if text]
    return Monitoring(
        nvml=reading.nvml,
        events=reading.events,
        kernel_log=kernel_log.status,
        message=one_line("; ".join(said)) if said else None,
    )


def _label_value(value: str) -> str:
    return _NOT_LABEL.sub("-", value)[:_LABEL_MAX]
