"""Device access on the tenant's slice or unit: systemd keeps everything in it from every device but its own.

`systemctl set-property --runtime` writes nothing that outlives a boot, and needs no `daemon-reload`, which older
container toolkits answer by losing GPUs.

Source: systemd.resource-control(5), DevicePolicy and DeviceAllow; agent facts, section 4.1; agent cases, A49.
"""

from collections.abc import Collection
from typing import Final

from muster_agent.core.records import Record
from muster_agent.drivers import commands
from muster_agent.drivers.bind import BindError, Revocation, artefact
from muster_agent.drivers.device_nodes import DeviceNodes

LIMIT_MS: Final = 10_000  # a busy systemd takes a second; one that takes ten is in trouble
PLACE: Final = "{allocation}"
"""Stands in a unit's name for the allocation: two allocations in one unit would have each other's devices."""


class SystemdDevices:
    """Sets `DevicePolicy=closed` and one `DeviceAllow=` a node on the unit of each allocation.

    Args:
        unit: The unit's name with `{allocation}` in it, such as `muster-{allocation}.slice`.
        nodes: Which device nodes there are.
        systemctl: The program.
    """

    def __init__(self, unit: str, nodes: DeviceNodes, systemctl: str = "systemctl") -> None:
        self._unit = unit
        self._nodes = nodes
        self._systemctl = systemctl

    @property
    def isolates(self) -> bool:
        """The kernel asks at opening: a node that is open already stays open until its holder is ended."""
        return False

    def grant(self, record: Record) -> None:
        """Close the unit to all devices, open it to the granted ones, and read both back."""
        allowed = self._allowed(record)
        self._set(record, *(f"DeviceAllow={entry}" for entry in ("", *sorted(allowed))))
        self.verify(record)

    def verify(self, record: Record) -> None:
        """Compare what systemd holds: a reload or another's `set-property` may have taken it away."""
        unit = self._name(record)
        arguments = [self._systemctl, "show", "--property=DevicePolicy,DeviceAllow", "--", unit]
        lines = self._run(arguments).splitlines()
        policy = [line.partition("=")[2] for line in lines if line.startswith("DevicePolicy=")]
        allowed = {line.partition("=")[2] for line in lines if line.startswith("DeviceAllow=")} - {""}
        if policy != ["closed"]:
            raise BindError(f"grantLost: {unit} has DevicePolicy={''.join(policy) or 'none'}, not closed")
        if allowed != self._allowed(record):
            raise BindError(f"grantLost: {unit} allows {', '.join(sorted(allowed)) or 'nothing'}")

    def revoke(self, record: Record) -> None:
        """Leave the unit closed to all devices."""
        self._set(record, "DeviceAllow=")

    def revocation(self, record: Record) -> Revocation:
        """Say the same as a command."""
        return Revocation(commands=(self._command(record, "DeviceAllow="),))

    def sweep(self, known: Collection[str]) -> list[str]:
        """Do nothing: what no record knows has no name here, and a boot ends it."""
        del known
        return []

    def _name(self, record: Record) -> str:
        return self._unit.replace(PLACE, record.allocation_id)

    def _allowed(self, record: Record) -> set[str]:
        artefact.devices(record)  # refuses a record without any
        return {f"/dev/{name} rw" for name in self._nodes.needed(record)}

    def _command(self, record: Record, *properties: str) -> tuple[str, ...]:
        fixed = (self._systemctl, "set-property", "--runtime", "--", self._name(record), "DevicePolicy=closed")
        return (*fixed, *properties)

    def _set(self, record: Record, *properties: str) -> None:
        self._run(list(self._command(record, *properties)))

    def _run(self, arguments: list[str]) -> str:
        try:
            ended = commands.run(arguments, LIMIT_MS)
        except OSError as error:
            raise BindError(f"{self._systemctl} cannot be started: {error.strerror}") from error
        if ended.trouble:
            raise BindError(f"{' '.join(arguments[:2])} {ended.trouble}")
        return ended.output
