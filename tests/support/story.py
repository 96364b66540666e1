"""The events of every subject, folded: each change told once, in order, and only along the allowed moves."""

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from sqlalchemy import Connection

MOVES: Mapping[str, Mapping[str | None, str]] = {
    "created": {None: "pending"},
    "unschedulable": {"pending": "pending"},
    "placed": {"pending": "placed"},
    "moved": {"pending": "pending", "placed": "placed"},
    "at_risk": {"placed": "placed"},
    "risk_cleared": {"placed": "placed"},
    "repaired": {"placed": "placed", "binding": "binding", "active": "binding"},
    "repair_failed": {"placed": "pending", "binding": "pending"},
    "extended": {one: one for one in ("pending", "placed", "binding", "active")},
    "shrunk": {one: one for one in ("pending", "placed", "binding", "active")},
    "binding": {"placed": "binding"},
    "active": {"binding": "active"},
    "degraded": {"active": "active"},
    "recovered": {"active": "active"},
    "ending": {"binding": "ending", "active": "ending"},
    "ended": {"pending": "ended", "placed": "ended", "ending": "ended"},
}
"""What a reservation's event does to its state. Source: design, section 3; written down anew, not imported."""


@dataclass(slots=True)
class Story:
    """What the events alone say of each subject. Reads only what is new since the last time."""

    number: int = 0
    states: dict[str, str | None] = field(default_factory=dict)  # only reservations have one
    versions: dict[str, int] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)  # reservations that have not ended
    faults: list[str] = field(default_factory=list)
    told: Counter[tuple[str, str | None]] = field(default_factory=Counter)  # events by type and the state they met

    def read(self, connection: Connection) -> None:
        """Take in the events that were committed since."""
        fresh = connection.exec_driver_sql(
            f"SELECT number, type, subject, version FROM event WHERE number > {self.number} ORDER BY version, number"
        )
        for number, kind, subject, version in fresh:
            self.number = max(self.number, number)
            self._take(kind, subject, version)

    def _take(self, kind: str, subject: str, version: int) -> None:
        if version != self.versions.get(subject, 0) + 1:
            self.faults.append(f"I28 {subject}: event {version} ({kind}) follows {self.versions.get(subject, 0)}")
        self.versions[subject] = version
        if not subject.startswith("rsv_"):
            return
        before = self.states.get(subject)
        self.told[kind, before] += 1
        after = MOVES.get(kind.removeprefix("reservation."), {}).get(before)
        if after is None:
            self.faults.append(f"I15 {subject}: {kind} while it is {before}")
        self.states[subject] = after
        if after == "ended":
            self.alive.discard(subject)
        else:
            self.alive.add(subject)

    def differences(self, rows: Mapping[str, tuple[str | None, int]]) -> Iterator[str]:
        """Compare with the rows of one kind: state (None where it has none) and version by subject."""
        for subject, (state, version) in rows.items():
            if self.versions.get(subject, 0) != version:
                told = self.versions.get(subject, 0)
                yield f"I28 {subject} is at version {version}, and its events at {told}"
            elif self.states.get(subject) != state:
                yield f"I15 {subject} is {state}, and its events say {self.states.get(subject)}"

    def vanished(self, rows: AbstractSet[str]) -> Iterator[str]:
        """Name reservations that the events leave alive and that are not among the rows of those alive."""
        for subject in sorted(self.alive - rows):
            yield f"I28 {subject} ended without an event"
