"""Waits for NVML's fault events in a thread of its own."""

import threading
from collections.abc import Callable
from typing import Any, Final, Literal

from muster_agent.core.readings import GpuEvent, instance_name
from muster_agent.drivers.nvml.calls import LOST, TIMEOUT, Calls, address_of, nvml, recovery_action_of

Events = Literal["ok", "partial", "down"]
"""Whether faults of all, some or no GPUs are told."""

_XID, _RECOVERY_ACTION = 0x8, 0x8000  # event types
_RECOVERY_ACTION_XID: Final = 154  # the XID that says the same as that event
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
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._set is not None)
                self._waiting, uuids = self._set, self._uuids
            while self._set is self._waiting:
                self._wait_once(uuids)
            Calls().ask("nvmlEventSetFree", self._waiting)
            with self._changed:
                self._waiting = None
                self._changed.notify_all()

    def _wait_once(self, uuids: dict[int, str]) -> None:
        fault: Any = None
        try:
            fault = nvml.nvmlEventSetWait_v2(self._waiting, _WAIT_MS)
        except nvml.NVMLError as error:
            code: int = error.value
            if code != TIMEOUT:
                self._give_up(deaf=code != LOST)
                return
        self._deaf = False
        if fault is not None and (event := _event(fault, uuids.get(address_of(fault.device)))):
            self._tell(event)

    def _give_up(self, *, deaf: bool) -> None:
        # A lost GPU ends every wait at once, and nobody says which it was. The next reading makes a new set, of the
        # GPUs that answer.
        with self._changed:
            self._deaf = deaf
            if self._set is self._waiting:
                self._set = None


def _registered(handles: dict[str, Any]) -> tuple[Any, Events]:
    """Make an event set of these GPUs."""
    calls = Calls()
    events = calls.ask("nvmlEventSetCreate") if handles else None
    if events is None:
        return None, "down" if handles else "ok"
    watched = 0
    for handle in handles.values():
        wanted = (calls.ask("nvmlDeviceGetSupportedEventTypes", handle) or 0) & (_XID | _RECOVERY_ACTION)
        refused = Calls()
        if wanted:
            refused.ask("nvmlDeviceRegisterEvents", handle, wanted, events)
        watched += bool(wanted & _XID) and refused.error is None and not refused.lost
    return events, "ok" if watched == len(handles) else "partial" if watched else "down"


def _event(fault: Any, uuid: str | None) -> GpuEvent | None:  # noqa: ANN401 - NVML's event struct
    if uuid is None or fault.eventType not in {_XID, _RECOVERY_ACTION}:
        return None
    code = int(fault.eventData) if fault.eventType == _XID else _RECOVERY_ACTION_XID
    action = recovery_action_of(fault.device, Calls()) if code == _RECOVERY_ACTION_XID else None
    whole = fault.gpuInstanceId == _WHOLE_GPU
    part = None if fault.computeInstanceId == _WHOLE_GPU else fault.computeInstanceId
    instance = None if whole else instance_name(fault.gpuInstanceId, part)
    return GpuEvent("nvml", code, uuid, None, 0, instance=instance, recovery_action=action)
