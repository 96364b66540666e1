"""Senses: folds readings and faults into inventory, holds and facts, and keeps what a restart must not lose."""

from collections.abc import Collection, Iterable
from typing import Any, Final

import structlog

from muster_agent.clock import Clock
from muster_agent.core.facts import facts_of
from muster_agent.core.findings import Findings
from muster_agent.core.health import Health
from muster_agent.core.inventory import InventoryFold, inventory_hash
from muster_agent.core.readings import GpuEvent, HostReading, KernelLogReading, NodeReading
from muster_agent.core.records import Facts, Record
from muster_agent.core.signs import signs_of
from muster_agent.core.victims import victim_of
from muster_agent.journal import Journal
from muster_shared.wire import Clearance, Hold, Inventory

LOG_EVERY_MS: Final = 60_000  # agent cases, A32

_log = structlog.get_logger(part="senses")


class Senses:
    """What the node is and how its GPUs fare, as of the last reading and fault.

    Args:
        host: Read once at start.
        journal: Keeps GPUs and holds over a restart.
        clock: Dates readings and holds.
    """

    def __init__(self, host: HostReading, journal: Journal, clock: Clock) -> None:
        self._host = host
        self._journal = journal
        self._clock = clock
        self._fold = journal.memory("inventory", InventoryFold.from_dict) or InventoryFold()
        self._health = journal.memory("health", Health.from_dict) or Health()
        self._findings = Findings()
        self._inventory: Inventory | None = None
        self._hash = ""
        self._bad = journal.bad()
        self._saved: dict[str, dict[str, Any]] = {}
        self._full: tuple[NodeReading, int] | None = None  # the latest one of a working NVML, and its boot clock
        self._logged: dict[tuple[str | None, int], int] = {}  # GPU and code -> boot clock

    @property
    def inventory(self) -> Inventory | None:
        """None before the first reading of this process."""
        return self._inventory

    @property
    def inventory_hash(self) -> str:
        """The inventory's name on the wire."""
        return self._hash

    @property
    def holds(self) -> list[Hold]:
        """All reasons not to book, those of bad files among them."""
        return [*self._health.holds, *(_of_bad_file(bad.path, binding=bad.binding) for bad in self._bad)]

    @property
    def facts(self) -> Facts | None:
        """What binding asks for; None until NVML has answered in full once."""
        if self._inventory is None or self._full is None:
            return None
        return facts_of(self._inventory, self.holds, *self._full)

    def take_reading(self, reading: NodeReading, kernel_log: KernelLogReading) -> None:
        """Fold in one reading of all GPUs."""
        boot_ms, now_ms = self._clock.boot_ms(), self._clock.unix_ms()
        self._fold = self._fold.after(reading, self._host, boot_ms, kernel_log)
        self._health = self._health.after_reading(reading, now_ms, self._host.boot_id, boot_ms, kernel_log)
        signs = signs_of(reading, self._fold, self._health, kernel_log, now_ms, boot_ms)
        self._findings = self._findings.after(signs, now_ms, boot_ms)
        told = self._fold.inventory and self._fold.inventory.model_copy(update={"findings": self._findings.told})
        if told and told != self._inventory:
            self._inventory, self._hash = told, inventory_hash(told)
        if reading.nvml == "ok":
            self._full = (reading, boot_ms)
        self._bad = self._journal.bad()
        self._keep()

    def take_event(self, event: GpuEvent, records: Collection[Record] = ()) -> bool:
        """Fold in one fault, from either source. True where it is worth a line in the log.

        Args:
            event: The fault.
            records: Of all allocations of the node: one of them may be what it hit.

        Source: agent cases, A32: a storm is one line a minute for each GPU and code.
        """
        before = self._health.gist
        victim = victim_of(event, self._health.known, records)
        self._health = self._health.after_event(event, self._clock.unix_ms(), self._host.boot_id, victim)
        # A hold is on disk before anything is told of it. Mere counts of a storm wait for the next reading.
        if self._health.gist != before:
            self._keep()
        fault, now_ms = (event.uuid or event.pci, event.code), self._clock.boot_ms()
        fresh = now_ms - self._logged.get(fault, -LOG_EVERY_MS) >= LOG_EVERY_MS
        if fresh:
            self._logged[fault] = now_ms
        return fresh

    def note_reset(self, uuids: Iterable[str]) -> None:
        """Note that GPUs were reset by our own hand; the next reading tells whether that ended their holds."""
        self._health = self._health.after_reset(uuids)
        self._keep()

    def obey(self, cleared: Iterable[Clearance]) -> None:
        """End holds by an operator's word. One that was raised since stays."""
        for word in cleared:
            meant = (word.device, word.cause, word.code)
            if any(
                (hold.device, hold.cause, hold.code) == meant and hold.since_ms <= word.since_ms for hold in self.holds
            ):
                self._health = self._health.cleared(*meant)
        self._keep()

    def _keep(self) -> None:
        for name, memory in (("inventory", self._fold.to_dict()), ("health", self._health.to_dict())):
            if self._saved.get(name) == memory:
                continue
            try:
                self._journal.save_memory(name, memory)
            except OSError as error:
                _log.warning("memory not saved", memory=name, trouble=str(error))
            else:
                self._saved[name] = memory


def _of_bad_file(path: str, *, binding: bool) -> Hold:
    return Hold(
        cause="unknownBindings" if binding else "memoryLost",
        since_ms=0,
        clears_by="operator",
        message=f"{path} could not be read: look who uses the GPUs, then remove it and restart the agent"[:256],
    )
