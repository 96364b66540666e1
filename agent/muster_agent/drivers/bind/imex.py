"""The IMEX channel of a gang whose memory spans hosts: the daemon's list of nodes, its readiness, the channel's node.

One daemon serves a host, reads its list at its start only, and the list's order gives the nodes their numbers, so
every member must have the same one. The channel's number is the coordinator's: it is one for the whole domain.

Source: agent facts, section 4.1, "IMEX"; agent cases, A55.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from muster_agent.core.records import Record
from muster_agent.drivers import commands
from muster_agent.drivers.bind import NOTHING, BindError, Revocation, artefact
from muster_agent.drivers.device_nodes import DeviceNodes, imex_node

NODES_CONFIG: Final = Path("/etc/nvidia-imex/nodes_config.cfg")
QUERY: Final = ("nvidia-imex-ctl", "-q")
RESTART: Final = ("systemctl", "restart", "nvidia-imex.service")
MAKE_CHANNEL: Final = ("systemd-run", "--quiet", "--wait", "--collect", "nvidia-modprobe", "-c")
"""In a unit of its own, because the agent's has no right to make device nodes."""

_MODE: Final = 0o644  # the daemon may run as another user; addresses are no secret


class Imex:
    """Sees to it that the host's daemon serves exactly the asked domain. Does nothing where no channel is asked for.

    A daemon that is not READY fails the bind for now: it is tried again with back-off for as long as it is wanted, and
    meanwhile the daemon goes on, because a list that stands already is not written again.

    Args:
        nodes: Which device nodes there are.
        nodes_config: The daemon's list of nodes.
        query: Prints the daemon's state.
        restart: Makes the daemon read its list.
        make_channel: Makes a channel's node, its number added.
        limit_ms: For each of the three programs.
    """

    def __init__(
        self,
        nodes: DeviceNodes,
        nodes_config: Path = NODES_CONFIG,
        query: tuple[str, ...] = QUERY,
        restart: tuple[str, ...] = RESTART,
        make_channel: tuple[str, ...] = MAKE_CHANNEL,
        *,
        limit_ms: int = 10_000,
    ) -> None:
        self._nodes = nodes
        self._nodes_config = nodes_config
        self._query = query
        self._restart = restart
        self._make_channel = make_channel
        self._limit_ms = limit_ms

    @property
    def isolates(self) -> bool:
        """A mapped channel stays mapped."""
        return False

    def grant(self, record: Record) -> None:
        """Write the list where it differs, then see to the daemon and the node."""
        if record.imex_channel is None:
            return
        if record.imex_peers and self._listed() != record.imex_peers:
            artefact.write(self._nodes_config, _body(record.imex_peers), mode=_MODE)
            self._run(self._restart)
        if not self._nodes.exists(imex_node(record.imex_channel)):
            self._run((*self._make_channel, str(record.imex_channel)))
        self.verify(record)

    def verify(self, record: Record) -> None:
        """See that the daemon has the list and is READY, and that the channel's node is there."""
        if record.imex_channel is None:
            return
        if record.imex_peers and self._listed() != record.imex_peers:
            raise BindError(f"imexNotReady: {self._nodes_config} is another domain's list")
        said = self._run(self._query).strip()
        if said != "READY":
            raise BindError(f"imexNotReady: {' '.join(self._query)} says {said or 'nothing'}")
        if not self._nodes.exists(imex_node(record.imex_channel)):
            raise BindError(f"imexNotReady: /dev/{imex_node(record.imex_channel)} is not there")

    def revoke(self, record: Record) -> None:
        """Leave the daemon alone: the next gang brings its own list, and a node without a domain opens nothing."""

    def revocation(self, record: Record) -> Revocation:
        """Nothing to take away."""
        del record
        return NOTHING

    def sweep(self, known: Collection[str]) -> list[str]:
        """Nothing here belongs to one allocation."""
        del known
        return []

    def _listed(self) -> tuple[str, ...]:
        try:
            lines = self._nodes_config.read_text(errors="replace").splitlines()
        except OSError:
            return ()
        return tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))

    def _run(self, arguments: tuple[str, ...]) -> str:
        try:
            ended = commands.run(arguments, self._limit_ms)
        except OSError as error:
            raise BindError(f"imexNotReady: {arguments[0]} cannot be started: {error.strerror}") from error
        if ended.trouble:
            raise BindError(f"imexNotReady: {' '.join(arguments)} {ended.trouble}")
        return ended.output


def _body(peers: tuple[str, ...]) -> bytes:
    return "".join(f"{peer}\n" for peer in peers).encode()
