"""Whether each GPU may be booked: a fold over faults and readings that never forgets by itself.

Read `after_event` and `after_reading`. What a fault means is a row of `xids`; how its hold ends is in `marks`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter

from muster_agent.core.conditions import (
    ACCEPTABLE,
    Moment,
    action_asked,
    ecc_rose,
    gpu_conditions,
    lost_conditions,
    node_conditions,
    suspect,
)
from muster_agent.core.marks import Mark
from muster_agent.core.readings import GpuEvent, KernelLogReading, NodeReading, one_line
from muster_agent.core.relapses import Cure, cured, rule_for
from muster_agent.core.sighting import Sighting, sighted
from muster_agent.core.suspects import Strike, Victim, is_suspect, struck
from muster_agent.core.tallies import MERGE_MS, Tally, tallied
from muster_agent.core.xids import is_of_a_program, xid
from muster_shared.wire import Hold

SEVERITY_WAIT_MS: Final = 10_000
"""How long a number without its severity waits for the kernel line that tells it; the line lags by milliseconds."""

_FAULTS: Final = frozenset({"xid", "eccErrors"})  # causes that were events: readings can only prove them over
_HOLDS_PER_PLACE: Final = 15  # 16 GPUs and the node: 255 holds at most, where a report carries 256


@dataclass(frozen=True, slots=True)
class Health:
    """All faults that still count, and how often each struck. Kept over restarts by `to_dict`."""

    boot_id: str = ""  # the boot of the latest event or reading
    known: dict[str, str] = field(default_factory=dict[str, str])  # UUID -> PCI address of every expected GPU
    marks: tuple[Mark, ...] = ()
    unsure: tuple[Mark, ...] = ()  # faults whose severity is not told yet
    tallies: tuple[Tally, ...] = ()
    waived: tuple[str, ...] = ()  # conditions that an operator has accepted, as `_waiver` names them
    kernel_seq: int = -1  # the newest kernel record that was folded in, in this boot
    strikes: tuple[Strike, ...] = ()  # assignments that were hit by faults of programs, of late
    uncorrected: dict[str, int] = field(default_factory=dict[str, int])  # UUID -> memory errors at the last reading
    cures: tuple[Cure, ...] = ()  # holds that ended by their rule, of late

    @property
    def holds(self) -> tuple[Hold, ...]:
        """What the report says: one hold for each device, cause and code, in a fixed order."""
        holds: dict[tuple[str, str, int], Hold] = {}
        listed: dict[str, int] = {}
        for mark in sorted(self.marks, key=lambda mark: mark.key):
            if mark.uuid is None and mark.pci and self.known:
                continue  # a GPU that NVML never named cannot be booked; until it names any, this may be one of them
            place = mark.device or ""
            key = (place, *mark.key[1:])
            if key not in holds and listed.get(place, 0) < _HOLDS_PER_PLACE:
                listed[place] = listed.get(place, 0) + 1
                holds[key] = _hold(mark)
        return tuple(hold for _, hold in sorted(holds.items()))

    @property
    def gist(self) -> tuple[object, ...]:
        """What the holds are made of: equal for equal holds, and cheaper to compare in a storm."""
        return tuple((mark.key, mark.since_ms, mark.clears_by) for mark in self.marks)

    def after_event(self, event: GpuEvent, now_ms: int, boot_id: str, victim: Victim | None = None) -> "Health":
        """Fold one fault in.

        A kernel record that was folded in before changes nothing, so the log may be read again from its start.

        Args:
            event: From either source, in any order between them.
            now_ms: Wall clock, milliseconds UTC: the hold's `since`.
            boot_id: The boot that the event's `boot_ms` counts from.
            victim: Whose program it hit, where one assignment alone can have been hit.
        """
        health = _in_boot(self, boot_id)
        if event.seq is not None:
            if event.seq <= health.kernel_seq:
                return health
            health = replace(health, kernel_seq=event.seq)
        if event.kind == "changed":
            return health  # the next reading tells
        uuid, place = _placed(health, event)
        health = replace(health, tallies=tallied(health.tallies, place, event, boot_id))
        if event.kind == "sxid":
            return health
        moment = Moment(now_ms, event.boot_ms, boot_id)
        if uuid and victim and is_of_a_program(event.code):
            health = _with_strike(health, uuid, event.code, victim, moment)
        fault = _fault(health, uuid, event, moment)
        match xid(event.code).effect:
            case "holdNew" | "unbookable":
                return replace(health, marks=_with(health.marks, fault))
            case "bySeverity":
                return _with_severity(health, fault, event)
            case "byValue" if event.recovery_action is not None:
                return _with_action(health, fault, event.recovery_action, moment)
            case _:
                return health

    def after_reading(
        self, reading: NodeReading, now_ms: int, boot_id: str, boot_ms: int, kernel_log: KernelLogReading
    ) -> "Health":
        """Fold one reading in: raise what it shows, end what it proves to be over.

        Args:
            reading: Any reading. Where NVML does not answer, what was known of the GPUs stays.
            now_ms: Wall clock, milliseconds UTC.
            boot_id: The present boot.
            boot_ms: Boot clock of the reading, milliseconds.
            kernel_log: Whether the other source of faults can be read.
        """
        health, moment = _in_boot(self, boot_id), Moment(now_ms, boot_ms, boot_id)
        due = tuple(
            mark
            for mark in health.unsure
            if kernel_log.status == "down" or boot_ms - mark.boot_ms >= SEVERITY_WAIT_MS or mark.boot_id != boot_id
        )
        health = replace(
            health,
            marks=_with(health.marks, *due),
            unsure=tuple(mark for mark in health.unsure if mark not in due),
        )
        if reading.nvml == "ok":
            health = _with_gpus(health, sighted(health.known, reading.gpus), moment)
        others = tuple(mark for mark in health.marks if mark.cause not in {"nvmlDown", "monitoringDown"})
        raised = node_conditions(reading, kernel_log, moment)
        return replace(health, marks=(*others, *_standing(health.marks, raised)))

    def after_reset(self, uuids: Iterable[str]) -> "Health":
        """Note that GPUs were reset and answered again: for their holds they were away, and the next reading judges."""
        reset = frozenset(uuids)
        return replace(self, marks=tuple(mark.seen_away() if mark.uuid in reset else mark for mark in self.marks))

    def cleared(self, device: str | None, cause: str, code: int | None) -> "Health":
        """End a hold by an operator's word. One that a reading still shows comes back with the next reading.

        Args:
            device: The hold's device; None for one that holds the node.
            cause: The hold's cause.
            code: The hold's code.
        """
        ended = tuple(mark for mark in self.marks if (mark.device, mark.cause, mark.code) == (device, cause, code))
        accepted = {_waiver(mark) for mark in ended if mark.cause in ACCEPTABLE}
        acquitted = {mark.uuid for mark in ended if mark.cause == "suspect"}
        return replace(
            self,
            marks=tuple(mark for mark in self.marks if mark not in ended),
            waived=tuple(sorted(accepted.union(self.waived))),
            strikes=tuple(strike for strike in self.strikes if strike.uuid not in acquitted),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as a JSON document."""
        document: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Health":
        """Go on after a restart. Every hold stands; a probe that was under way begins anew.

        Raises:
            ValueError: The document is not one that `to_dict` wrote.
        """
        health = _adapter().validate_python(document)
        return replace(health, marks=tuple(replace(mark, good_boot_ms=None) for mark in health.marks))


@cache
def _adapter() -> TypeAdapter[Health]:
    return TypeAdapter(Health)


def _in_boot(health: Health, boot_id: str) -> Health:
    if boot_id == health.boot_id:
        return health
    marks = tuple(replace(mark, good_boot_ms=None) for mark in health.marks)
    return replace(health, boot_id=boot_id, kernel_seq=-1, marks=marks)


def _placed(health: Health, event: GpuEvent) -> tuple[str | None, str]:
    uuid = event.uuid or next((uuid for uuid, pci in health.known.items() if pci == event.pci), None)
    return uuid, uuid or event.pci or ""


def _fault(health: Health, uuid: str | None, event: GpuEvent, moment: Moment) -> Mark:
    row = xid(event.code)
    clears_by, message = row.clears_by, f"{row.name}: {event.detail}" if event.detail else row.name
    if event.live:
        clears_by = rule_for(health.cures, uuid, event.code, clears_by, moment.unix_ms)
        message = message if clears_by == row.clears_by else f"{message} (again)"
    elif clears_by == "gpuResetVerified":
        # The reset may have been before anybody looked: then the driver, who knows, asks for nothing.
        clears_by = "recoveryActionNone"
    return moment.mark("xid", event.code, clears_by, message, uuid=uuid, pci=None if uuid else event.pci)


def _with_strike(health: Health, uuid: str, code: int, victim: Victim, moment: Moment) -> Health:
    strikes = struck(health.strikes, Strike(uuid, victim, moment.boot_id, moment.boot_ms, moment.unix_ms))
    health = replace(health, strikes=strikes)
    held = any(mark.cause == "suspect" and mark.uuid == uuid for mark in health.marks)
    if held or not is_suspect(strikes, uuid):
        return health
    return replace(health, marks=_with(health.marks, suspect(uuid, code, moment)))


def _with_severity(health: Health, fault: Mark, event: GpuEvent) -> Health:
    # Without the word the driver's recovery action has the last one.
    unsure = tuple(mark for mark in health.unsure if mark.key != fault.key)
    assumed = replace(fault, clears_by="recoveryActionNone") if fault.clears_by == "gpuResetVerified" else fault
    told = event.source == "nvml" and health.tallies[-1].kernel_log > 0  # the line came before the number
    if event.fatal is True:
        return replace(health, marks=_with(health.marks, fault), unsure=unsure)
    if event.fatal is False:
        return replace(health, unsure=unsure)
    if event.source == "kernelLog":
        return replace(health, marks=_with(health.marks, assumed), unsure=unsure)
    return health if told else replace(health, unsure=(*unsure, assumed))


def _with_action(health: Health, fault: Mark, action: int, moment: Moment) -> Health:
    # Either way the driver has spoken: faults before this are over once the GPU reads well without an action.
    marks = tuple(
        replace(mark, acted=True) if mark.place == fault.place and mark.cause in _FAULTS else mark
        for mark in health.marks
        if not (mark.place == fault.place and mark.cause == "recoveryAction")
    )
    asked = (action_asked(fault.uuid, fault.pci, action, moment),) if action else ()
    return replace(health, marks=(*marks, *_standing(health.marks, asked)))


def _with_gpus(health: Health, sighting: Sighting, moment: Moment) -> Health:
    names = {pci: uuid for uuid, pci in sighting.expected.items()}
    named = (
        replace(mark, uuid=names[mark.pci], pci=None) if mark.pci in names and mark.uuid is None else mark
        for mark in health.marks
    )
    marks = _with((), *named)  # one that is named now may be there by its name already
    shown = [mark for uuid, gpu in sorted(sighting.answering.items()) for mark in gpu_conditions(uuid, gpu, moment)]
    raised = [
        *lost_conditions(sighting.missing, moment),
        *(mark for mark in shown if _waiver(mark) not in health.waived),
    ]
    lasting = {mark: _lasting(mark, sighting, moment) for mark in marks}
    kept = [after for after in lasting.values() if after is not None]
    over = (mark for mark, after in lasting.items() if after is None and mark.cause == "xid")
    ended = [Cure(mark.uuid or "", mark.code or 0, mark.clears_by, moment.unix_ms) for mark in over]
    lasting_waivers = {_waiver(mark) for mark in shown if mark.cause in ACCEPTABLE}
    after = replace(
        health,
        known=sighting.expected,
        marks=(*kept, *_standing(marks, (mark for mark in raised if mark.key not in {k.key for k in kept}))),
        waived=tuple(
            waiver
            for waiver in health.waived
            if waiver in lasting_waivers or waiver.partition(" ")[0] in sighting.missing
        ),
        strikes=tuple(strike for strike in health.strikes if strike.uuid in sighting.expected),
        cures=tuple(cure for cure in cured(health.cures, ended) if cure.uuid in sighting.expected),
    )
    return _with_ecc(after, sighting, moment)


def _with_ecc(health: Health, sighting: Sighting, moment: Moment) -> Health:
    """Hold the GPUs whose uncorrectable errors rose without a word: an XID may be switched off, or lost."""
    counts = {
        uuid: gpu.memory_health.uncorrected for uuid, gpu in sighting.answering.items() if gpu.memory_health is not None
    }
    explained = {
        tally.place
        for tally in health.tallies
        if xid(tally.code).kind == "memory"
        and tally.boot_id == moment.boot_id
        and moment.boot_ms - tally.latest_boot_ms <= MERGE_MS
    }
    rose = {
        uuid: count - health.uncorrected[uuid]
        for uuid, count in sorted(counts.items())
        if count > health.uncorrected.get(uuid, count) and uuid not in explained
    }
    marks = _with(health.marks, *(ecc_rose(uuid, by, moment) for uuid, by in rose.items()))
    kept = {uuid: count for uuid, count in health.uncorrected.items() if uuid in sighting.expected}
    return replace(health, marks=marks, uncorrected=kept | counts)


def _waiver(mark: Mark) -> str:
    # The first such condition was named by its GPU alone, and files of that time are still read.
    return mark.place if mark.cause == "rowRemapFailure" else f"{mark.place} {mark.cause}"


def _lasting(mark: Mark, sighting: Sighting, moment: Moment) -> Mark | None:
    """Return what a reading leaves of a mark; conditions that the reading can judge are raised by it anew."""
    if mark.uuid is None:
        return mark
    if mark.uuid not in sighting.expected:
        return None  # the GPU was replaced: its faults went with it
    gpu = sighting.answering.get(mark.uuid)
    if mark.cause == "deviceLost":
        return None
    if mark.cause in _FAULTS:
        return mark.seen_away() if gpu is None else mark.seen(gpu, moment.boot_id, moment.boot_ms)
    judged = gpu is not None and (mark.cause != "recoveryAction" or gpu.recovery_action is not None)
    return None if judged and mark.clears_by != "operator" else mark


def _standing(before: Iterable[Mark], raised: Iterable[Mark]) -> tuple[Mark, ...]:
    """Return conditions with the time at which each began: one that stood before goes on."""
    since = {(mark.place, mark.cause): mark.since_ms for mark in before}
    return tuple(replace(mark, since_ms=since.get((mark.place, mark.cause), mark.since_ms)) for mark in raised)


def _with(marks: tuple[Mark, ...], *faults: Mark) -> tuple[Mark, ...]:
    """Add faults; the same fault again renews its mark."""
    merged = {mark.key: mark for mark in marks}
    for fault in faults:
        merged[fault.key] = merged[fault.key].again(fault) if fault.key in merged else fault
    return tuple(merged.values())


def _hold(mark: Mark) -> Hold:
    where = f" (GPU at {mark.pci})" if mark.uuid is None and mark.pci else ""
    return Hold(
        device=mark.device,
        cause=mark.cause,
        code=mark.code,
        since_ms=mark.since_ms,
        clears_by=mark.clears_by,
        message=one_line(f"{mark.message}{where}"),
    )
