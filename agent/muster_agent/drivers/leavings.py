"""Processes on devices: found before a bind, ended after an unbind.

Source: agent facts, sections 4.2 (step 4) and 4.3; agent cases, A44 and A55.
"""

import signal
from typing import Final

from muster_agent.core.records import Evict, Look
from muster_agent.drivers.bind import BindError
from muster_agent.drivers.device_nodes import DeviceNodes
from muster_agent.holders.ending import send
from muster_agent.holders.processes import Holder, ProcessTable

_NAMED_MAX: Final = 8  # pids in one sentence of a report, which has 256 characters


class Leavings:
    """Looks who is on a device, by open files and by what NVML told, and ends who should have left.

    Args:
        nodes: Which device nodes there are.
        table: The host's processes.
    """

    def __init__(self, nodes: DeviceNodes, table: ProcessTable) -> None:
        self._nodes = nodes
        self._table = table
        self._told: dict[str, frozenset[Holder]] = {}  # allocation -> who was sent TERM: a second one means "at once"

    def look(self, act: Look) -> None:
        """See that nobody is on the devices.

        Raises:
            BindError: Somebody is, and is left alone: it was never the agent's to let in or to end.
        """
        if found := self._found(act):
            raise BindError(f"foreignProcess: {_named(found)} on {', '.join(act.devices)}")

    def evict(self, act: Evict) -> None:
        """Tell everybody on the devices to end: TERM once, or KILL.

        Raises:
            BindError: Somebody is left. Who has been sent KILL needs a moment too.
        """
        found = self._found(act)
        allocation_id = act.record.allocation_id
        told = self._told.get(allocation_id, frozenset[Holder]())
        for holder in found:
            if act.force or holder not in told:
                send(holder, signal.SIGKILL if act.force else signal.SIGTERM, self._table)
        if not found:
            self._told.pop(allocation_id, None)
            return
        self._told[allocation_id] = told | frozenset(found)
        raise BindError(f"{'releaseBlocked' if act.force else 'ending'}: {_named(found)}")

    def _found(self, act: Look | Evict) -> list[Holder]:
        by_file = self._table.holding(self._nodes.private(act.record, act.devices))
        by_nvml = self._table.named(act.pids, act.pids_boot_ms)
        return sorted({*by_file, *by_nvml})


def _named(holders: list[Holder]) -> str:
    more = f" and {len(holders) - _NAMED_MAX} more" if len(holders) > _NAMED_MAX else ""
    return ", ".join(str(holder) for holder in holders[:_NAMED_MAX]) + more
