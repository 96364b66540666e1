"""Faults in the kernel log: records of /dev/kmsg in, GPU events out.

A fold, because one message may be spread over three records, and because the driver tells which UUID sits at
which PCI address only once, before a GPU's first fault.

Source: Documentation/ABI/testing/dev-kmsg of the kernel for the record; the open GPU kernel modules (kernel_rc.c,
gpu.c, osinit.c) for the messages.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from muster_agent.core.readings import GpuEvent, instance_name, pci_address

_FACILITY_KERNEL: Final = 0
"""What user space writes to /dev/kmsg gets facility 1 whatever it claims, so nobody can forge a fault."""

_FELL_OFF_THE_BUS: Final = 79  # the XID that means the same as the messages without a number

_RECORD: Final = re.compile(r"(\d{1,6}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\x([0-9a-f]{2})")
# Messages are matched from their first letter: a later part may be the name of a tenant's program.
_XID: Final = re.compile(
    r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)(?: GPU-I:(\d{1,4}))?(?: GPU-CI:(\d{1,4}))?\): (\d{1,6})(?:, (.*))?", re.DOTALL
)
_PLACE: Final = re.compile(r"NVRM: GPU at PCI:([0-9A-Fa-f:.]+): (GPU-[0-9a-f-]{4,76})")
_GONE: Final = re.compile(r"NVRM: GPU ([0-9A-Fa-f:.]+): GPU has fallen off the bus")
_GONE_FIRST: Final = re.compile(r"NVRM: The NVIDIA GPU ([0-9A-Fa-f:.]+)")
_GONE_MIDDLE: Final = "NVRM: (PCI ID:"
_GONE_LAST: Final = "NVRM: fallen off the bus"
_PROCESS: Final = re.compile(r"pid=[^,]{1,20}, name=.{0,15}, ", re.DOTALL)  # the kernel's name of a program: 15 bytes
_SEVERITY: Final = re.compile(r"\w+ (Nonfatal|Fatal|Link Fatal)\b")
_NVLINK: Final = re.compile(
    r"(\w+) (Nonfatal|Fatal|Link Fatal) XC\d+ i\d+ Link (-?\d+) \(0x([0-9a-fA-F]{1,8}) (0x[0-9a-fA-F]{1,8})"
)
_SUBCODE_SHIFT, _SUBCODE_MASK = 20, 0x3F  # where the first word of an NVLink 5 fault has its sub-code
_SXID: Final = re.compile(
    r"nvidia-nvswitch\d{1,3}: SXid \(PCI:([0-9A-Fa-f:.]+)\): (\d{1,6}), (Fatal|Non-fatal)\b(.{0,80})"
)
_ACTION: Final = re.compile(r"GPU recovery action changed from 0x[0-9a-f]{1,4} \([^)]*\) to 0x([0-9a-f]{1,4})")


@dataclass(frozen=True, slots=True)
class KernelLog:
    """What earlier records said that later ones need."""

    uuids: Mapping[str, str] = field(default_factory=dict[str, str])  # PCI address -> UUID
    falling: str | None = None  # PCI address of a message that has begun and may end with "fallen off the bus"

    def after_all(
        self, records: Iterable[bytes], boot_ms: int, *, live: bool, any_facility: bool = False
    ) -> "tuple[KernelLog, list[GpuEvent]]":
        """Fold a burst of records in; return its faults, equal ones as one with their count.

        A storm of hundreds of thousands of lines is known that said 29 different things. Each event has the number of
        its latest record and stands in that order, so that whoever remembers the highest number misses none.
        """
        log, latest, counts = self, dict[tuple[object, ...], GpuEvent](), Counter[tuple[object, ...]]()
        for record in records:
            log, event = log.after(record, boot_ms, live=live, any_facility=any_facility)
            if event:
                what = (event.kind, event.code, event.pci, event.instance, event.fatal, event.recovery_action)
                latest.pop(what, None)
                latest[what] = event
                counts[what] += 1
        return log, [
            event if counts[what] == 1 else replace(event, count=counts[what]) for what, event in latest.items()
        ]

    def after(
        self, record: bytes, boot_ms: int, *, live: bool, any_facility: bool = False
    ) -> "tuple[KernelLog, GpuEvent | None]":
        """Fold one record in; return the fault it completes, if any. Never raises.

        Args:
            record: `prio,seq,usec,flags;text`, without its continuation lines.
            boot_ms: Boot clock now, in milliseconds.
            live: It was written just now. Otherwise its own stamp counts, which stands still while the host is
                suspended and has been seen ahead of all clocks.
            any_facility: Believe user space too. For tests, which cannot write as the kernel.
        """
        parts = _RECORD.fullmatch(record.decode(errors="replace"))
        if parts is None or (int(parts[1]) >> 3 != _FACILITY_KERNEL and not any_facility):
            return self, None
        text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), parts[4])
        at_ms = boot_ms if live else min(int(parts[3]) // 1_000, boot_ms)
        log, found = self, None
        for line in text.split("\n"):
            log, at_line = _after_line(log, _Line(line, at_ms, int(parts[2]), live))
            found = found or at_line
        return log, found


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a record, and what the record says of it."""

    text: str
    boot_ms: int
    seq: int
    live: bool

    def tells(
        self,
        place: str,
        code: int,
        uuids: Mapping[str, str],
        **more: Any,  # noqa: ANN401 - fields of an event
    ) -> GpuEvent | None:
        """Return the fault that it tells of; None where its place is no PCI address."""
        pci = pci_address(place)
        if pci is None:
            return None
        return GpuEvent(
            "kernelLog", code, uuids.get(pci), pci, self.boot_ms, self.seq, text=self.text, live=self.live, **more
        )


def _after_line(log: KernelLog, line: _Line) -> tuple[KernelLog, GpuEvent | None]:
    text = line.text
    if switch := _SXID.match(text):
        where, code, severity, rest = switch.groups()
        detail = f"{severity}{rest}"
        return log, line.tells(where, int(code), {}, fatal=severity == "Fatal", detail=detail, kind="sxid")
    # Other parts of the kernel may write between the records of one message.
    if not text.startswith("NVRM: ") or text.startswith(_GONE_MIDDLE):
        return log, None
    begun, done = log.falling, log if log.falling is None else replace(log, falling=None)
    if xid := _XID.match(text):
        return done, _xid_event(log, xid, line)
    if first := _GONE_FIRST.match(text):
        return replace(log, falling=first[1]), None
    if (place := _PLACE.match(text)) and (pci := pci_address(place[1])):
        return replace(done, uuids={**log.uuids, pci: place[2]}), None
    gone = _GONE.match(text)
    fallen = gone[1] if gone else begun if text.startswith(_GONE_LAST) else None
    return done, line.tells(fallen, _FELL_OFF_THE_BUS, log.uuids) if fallen else None


def _xid_event(log: KernelLog, xid: re.Match[str], line: _Line) -> GpuEvent | None:
    place, gpu_instance, compute_instance, code, rest = xid.groups()
    told = _PROCESS.sub("", rest or "", count=1)
    severity, action = _SEVERITY.match(told), _ACTION.match(told)
    instance = None
    if gpu_instance is not None:
        instance = instance_name(int(gpu_instance), None if compute_instance is None else int(compute_instance))
    return line.tells(
        place,
        int(code),
        log.uuids,
        instance=instance,
        fatal=severity[1] != "Nonfatal" if severity else None,
        recovery_action=int(action[1], 16) if action else None,
        detail=_nvlink_detail(told),
    )


def _nvlink_detail(told: str) -> str:
    """Read out of an NVLink 5 message which unit failed at which link, and how."""
    found = _NVLINK.match(told)
    if found is None:
        return ""
    unit, severity, link, first_word, status = found.groups()
    where = f"link {link}" if link != "-1" else "no link"
    subcode = int(first_word, 16) >> _SUBCODE_SHIFT & _SUBCODE_MASK
    return f"{unit} {severity.lower()}, {where}, sub-code {subcode}, status {status}"
