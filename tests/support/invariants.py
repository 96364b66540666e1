"""What must hold after every commit, by plain SQL and short Python that share nothing with the planner they judge.

A sentence begins with the number of its invariant. Source: reliability facts, section 2; design, section 15.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from muster_coordinator.service.doctor.book import HELD, Picture, Row, activity, bookings, gangs, starts_at
from muster_coordinator.service.doctor.ledger import charges
from muster_coordinator.service.doctor.usage import records
from tests.support.story import Story
from tests.support.truth import Truth
from tests.support.upkeep import check_upkeep

EARLY_MS = 1_000  # an exposure may begin so much before the start ...
LATE_MS = 2_000  # ... and end so much after its grant, or after its agent woke up


@dataclass(slots=True)
class Watch:
    """Checks commit after commit, remembering what it saw: a check costs what is alive, not what ever was."""

    truth: Truth | None = None
    story: Story = field(default_factory=Story)
    generations: dict[str, int] = field(default_factory=dict)
    reports: dict[str, tuple[str | None, int]] = field(default_factory=dict)  # newest by node
    members: set[str] = field(default_factory=set)  # allocations that were seen before

    def check(self, connection: Connection, now_ms: int) -> list[str]:
        """Return what is violated now; empty when all is well."""
        picture = Picture.of(connection)
        self.story.read(connection)
        return [
            *self.story.faults,
            *self.story.differences({one.id: (one.state, one.version) for one in picture.reservations.values()}),
            *self.story.vanished(picture.reservations.keys()),
            *self.story.differences({key: (None, node.version) for key, node in picture.nodes.items()}),
            *map(str, bookings(picture)),
            *map(str, gangs(picture)),
            *map(str, activity(picture, now_ms)),
            *self._series(connection),
            *map(str, charges(connection)),
            *map(str, records(connection)),
            *self._generations(picture),
            *self._reports(picture),
            *self._newcomers(connection, picture),
            *(_truths(connection, picture, self.truth, now_ms) if self.truth else ()),
        ]

    def _series(self, connection: Connection) -> Iterator[str]:
        """What nobody wants is not kept, and each change of a series is told once."""
        found = connection.exec_driver_sql("SELECT id, version, end_reason, skipped FROM series").all()
        yield from self.story.differences({series_id: (None, version) for series_id, version, _, _ in found})
        kept = connection.exec_driver_sql(
            "SELECT series_id, occurrence_ms, state FROM reservation WHERE series_id IS NOT NULL AND state <> 'ended'"
        ).all()
        for series_id, _, end_reason, skipped in found:
            for _, occurrence_ms, state in (row for row in kept if row[0] == series_id):
                if occurrence_ms in json.loads(skipped):
                    yield f"{series_id} skips {occurrence_ms}, and it is {state}"
                if end_reason == "Cancelled" and state in {"pending", "placed"}:
                    yield f"{series_id} was cancelled, and {occurrence_ms} is {state}"

    def _generations(self, picture: Picture) -> Iterator[str]:
        for one in picture.reservations.values():
            if one.generation < self.generations.get(one.id, 0):
                yield f"I16 {one.id}: its generation fell to {one.generation}"
            self.generations[one.id] = one.generation

    def _reports(self, picture: Picture) -> Iterator[str]:
        for node_id, node in picture.nodes.items():
            boot_id, seq = self.reports.get(node_id, (node.boot_id, node.seq))
            if node.boot_id in node.past_boots or (node.boot_id == boot_id and node.seq < seq):
                yield f"I33 {node_id} went back from report {seq} of {boot_id} to {node.seq} of {node.boot_id}"
            self.reports[node_id] = node.boot_id, node.seq

    def _newcomers(self, connection: Connection, picture: Picture) -> Iterator[str]:
        fresh = {row.id: row for row in picture.rows if row.live and row.id not in self.members}
        self.members |= fresh.keys()
        atoms = {node_id: node.atoms for node_id, node in picture.nodes.items()}
        yield from check_upkeep(connection, self.story, atoms, fresh.keys())
        yield from self._topology(connection, fresh)

    def _topology(self, connection: Connection, fresh: Mapping[str, Row]) -> Iterator[str]:
        """A member joins on a node that shows the recorded value in the very transaction that books it."""
        keyed = [row for row in fresh.values() if json.loads(row.agreed)]
        if not keyed:
            return
        labels = {
            node_id: {**json.loads(given), **(json.loads(inventory)["labels"] if inventory else {})}
            for node_id, given, inventory in connection.exec_driver_sql(
                "SELECT id, operator_labels, inventory FROM node"
            )
        }
        for row in keyed:
            for key, value in json.loads(row.agreed):
                shown = labels[row.node_id].get(key)
                if shown != value:
                    yield f"I02 {row.id} joined {row.reservation_id} on {row.node_id}, which shows {shown}, not {value}"


def check(connection: Connection, now_ms: int, truth: Truth | None = None) -> list[str]:
    """Check a whole database from scratch, on either engine.

    Args:
        connection: In a transaction, or outside any; nothing is written.
        now_ms: The coordinator's clock.
        truth: What drivers really did, where somebody kept it.
    """
    watch = Watch(truth)
    # Labels may have moved since the members joined: only a watch from the beginning can tell.
    watch.members = {row[0] for row in connection.exec_driver_sql("SELECT id FROM allocation")}
    return watch.check(connection, now_ms)


def _truths(connection: Connection, picture: Picture, truth: Truth, now_ms: int) -> Iterator[str]:
    yield from truth.faults
    rows = {row.id: row for row in picture.rows}
    for row in picture.rows:
        res = picture.reservations.get(row.reservation_id)
        is_active = res is not None and res.state == "active" and row.live and row.bind == "bound"
        if is_active and (row.id, row.bound_boot) not in truth.bound:
            yield f"I04 {row.reservation_id} is active, and {row.id} was never bound in {row.bound_boot}"
    for exposure in truth.open.values():
        told = rows.get(exposure.allocation_id)
        if told is None or told.bind not in HELD:
            state = told.bind if told else _bind_state(connection, exposure.allocation_id)
            if state != "fenced":
                yield f"I09 {exposure.allocation_id} is {state}, and {exposure.node_id} exposes it"
            continue
        start_ms = starts_at(told)
        if exposure.from_ms < start_ms - EARLY_MS:
            yield f"I08 {told.id} was exposed {start_ms - exposure.from_ms} ms before its start"
        awake_ms = truth.awake_since_ms.get(exposure.node_id)
        if told.grant_until_ms is None:
            yield f"I08 {told.id} is exposed without a grant"
        elif awake_ms is not None and now_ms > max(told.grant_until_ms, awake_ms) + LATE_MS:
            yield f"I08 {told.id} is exposed {now_ms - told.grant_until_ms} ms past its grant"


def _bind_state(connection: Connection, allocation_id: str) -> str:
    found = connection.exec_driver_sql(f"SELECT bind_state FROM allocation WHERE id = '{allocation_id}'").scalar()
    return "unknown" if found is None else str(found)
