"""Which nodes of a pool have maintenance ahead: few, so that nobody asks all of them again and again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster_coordinator.core.model import MaintenanceWindow
from muster_coordinator.core.snapshot import Snapshot


@dataclass(frozen=True)
class Upkeep:
    """The maintenance windows of a pool that are not over, by the number of the node."""

    windows: Mapping[int, tuple[MaintenanceWindow, ...]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Upkeep":
        """Look at every node, or carry on what is known of this pool."""
        return snapshot.once("maintenance", lambda pool: cls({}).revised(pool, range(len(pool.ordered))))

    def revised(self, snapshot: Snapshot, changed: Iterable[int]) -> "Upkeep":
        """Return the windows of a pool in which some nodes have changed."""
        windows = dict(self.windows)
        for number in changed:
            windows.pop(number, None)
            if found := snapshot.ordered[number].node.maintenance:
                windows[number] = found
        return Upkeep(windows)
