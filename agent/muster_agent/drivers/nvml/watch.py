"""Waits for NVML's fault events in a thread of its own."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Literal

from muster_agent.core.readings import GpuEvent, instance_name
from muster_agent.drivers.nvml.calls import LOST, RECOVERY_ACTION, TIMEOUT, Calls, address_of, nvml

Events = Literal["ok", "partial", "down"]
"""Whether faults of all, some or no GPUs are told."""

_XID, _RECOVERY_ACTION = 0x8, 0x8000  # event types
_RECOVERY_ACTION_XID: Final = 154  # the XID that says the same as that event
_CHANGES: Final = {
    0x2: "double-bit ECC error",
    0x100: "MIG configuration",
    0x200: "storm of single-bit ECC errors",
    0x400: "memory retirement",
    0x800: "failed memory retirement",
    0x1000: "non-fatal poison",
    0x2000: "fatal poison",
    0x4000: "GPU unavailable",
}
"""Event types that carry nothing but that the next reading will differ."""

_WHOLE_GPU: Final = 0xFFFFFFFF  # NVML's word for "no MIG instance"
_WAIT_MS: Final = 1_000  # how long a wait for events keeps an old event set alive


class Watch:
    """Which GPUs are watched, and the thread that waits for their faults."""

    def __init__(self, tell: Callable[[GpuEvent], None]) -> None:
        """Begin with no GPU watched.

        Args:
            tell: Receives each fault, in the watching thread.
        """
        self._tell = tell
        self._changed = threading.Condition()
        self._uuids: dict[int, str] = {}  # by handle: a GPU that was reset has another one
        self._set: Any = None  # what shall be waited on
        self._waiting: Any = None  # what the thread waits on, at most one wait longer
        self._status: Events = "down"
        self._deaf = False  # the latest wait failed: registered, but nothing is heard
        self._thread: threading.Thread | None = None

    def over(self, handles: dict[str, Any]) -> Events:
        """Watch these GPUs from now on; answer whether all, some or none of them can be watched."""
        uuids = {address_of(handle): uuid for uuid, handle in handles.items()}
        with self._changed:
            if self._set is None or uuids != self._uuids:
                self._uuids = uuids
                self._set, self._status = _registered(handles)
                self._changed.notify_all()
            if self._thread is None and self._set is not None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="nvml-events")
                self._thread.start()
            return "down" if self._deaf else self._status

    def stop(self) -> None:
        """Watch nothing, and return only when no call into NVML is under way any more."""
        with self._changed:
            self._set = None
            self._changed.wait_for(lambda: self._waiting is None)

    def _run(self) -> None:
        echoes: Counter[_Key] = Counter()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._set is not None)
                self._waiting, uuids = self._set, self._uuids
            echoes = self._tell_all(uuids, echoes)
            Calls().ask("nvmlEventSetFree", self._waiting)
            with self._changed:
                self._waiting = None
                self._changed.notify_all()

    def _tell_all(self, uuids: dict[int, str], echoes: Counter["_Key"]) -> Counter["_Key"]:
        """Tell the faults of one event set until another takes its place.

        The next set is registered before this one is left, so that nothing is missed; a fault that falls between
        comes over both.

        Args:
            uuids: Of the GPUs in it, by handle.
            echoes: What the former set told when this one was there already: not told again.

        Returns:
            What the next set may tell again.
        """
        while event := self._next(uuids, 0):
            echoes[_key(event)] -= 1
            if echoes[_key(event)] < 0:
                self._tell(event)
        both: Counter[_Key] = Counter()
        while self._set is self._waiting:
            if event := self._next(uuids, _WAIT_MS):
                self._tell(event)
                both[_key(event)] += self._set is not self._waiting
        while event := self._next(uuids, 0):
            self._tell(event)
            both[_key(event)] += 1
        return both

    def _next(self, uuids: dict[int, str], wait_ms: int) -> GpuEvent | None:
        """Wait for the next event that says something; None when the time is over or the wait failed."""
        while True:
            try:
                fault = nvml.nvmlEventSetWait_v2(self._waiting, wait_ms)
            except nvml.NVMLError as error:
                code: int = error.value
                if code != TIMEOUT:
                    self._give_up(deaf=code != LOST)
                else:
                    self._deaf = False
                return None
            self._deaf = False
            if event := _event(fault, uuids.get(address_of(fault.device))):
                return event

    def _give_up(self, *, deaf: bool) -> None:
        # A lost GPU ends every wait at once, and nobody says which it was. The next reading makes a new set, of the
        # GPUs that answer.
        with self._changed:
            self._deaf = deaf
            if self._set is self._waiting:
                self._set = None


_Key = tuple[str | None, int, str | None, str]


def _key(event: GpuEvent) -> _Key:
    return (event.uuid, event.code, event.instance, event.text)


def _registered(handles: dict[str, Any]) -> tuple[Any, Events]:
    """Make an event set of these GPUs."""
    calls = Calls()
    events = calls.ask("nvmlEventSetCreate") if handles else None
    if events is None:
        return None, "down" if handles else "ok"
    watched = 0
    for handle in handles.values():
        supported = calls.ask("nvmlDeviceGetSupportedEventTypes", handle) or 0
        faults = supported & (_XID | _RECOVERY_ACTION)
        # Without privilege some of the others are refused, and all that are asked for with them.
        heard = _is_registered(handle, supported & (_XID | _RECOVERY_ACTION | sum(_CHANGES)), events)
        heard = heard or _is_registered(handle, faults, events)
        watched += heard and bool(supported & _XID)
    return events, "ok" if watched == len(handles) else "partial" if watched else "down"


def _is_registered(handle: Any, wanted: int, events: Any) -> bool:  # noqa: ANN401 - NVML's handles
    calls = Calls()
    if wanted:
        calls.ask("nvmlDeviceRegisterEvents", handle, wanted, events)
    return bool(wanted) and not calls.failed


def _event(fault: Any, uuid: str | None) -> GpuEvent | None:  # noqa: ANN401 - NVML's event struct
    if uuid is None:
        return None
    if change := _CHANGES.get(fault.eventType):
        return GpuEvent("nvml", 0, uuid, None, 0, text=change, kind="changed")
    if fault.eventType not in {_XID, _RECOVERY_ACTION}:
        return None
    code = int(fault.eventData) if fault.eventType == _XID else _RECOVERY_ACTION_XID
    action = Calls().field(fault.device, RECOVERY_ACTION) if code == _RECOVERY_ACTION_XID else None
    whole = fault.gpuInstanceId == _WHOLE_GPU
    part = None if fault.computeInstanceId == _WHOLE_GPU else fault.computeInstanceId
    instance = None if whole else instance_name(fault.gpuInstanceId, part)
    return GpuEvent("nvml", code, uuid, None, 0, instance=instance, recovery_action=action)
