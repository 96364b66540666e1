"""What must hold after every commit, by plain SQL and short Python that share nothing with the planner they judge.

A sentence begins with the number of its invariant. Source: reliability facts, section 2; design, section 15.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from sqlalchemy import Connection

from muster_coordinator.service.doctor.ledger import charges
from tests.support.story import Story
from tests.support.truth import Truth
from tests.support.upkeep import check_upkeep

HELD = frozenset({"binding", "bound", "unbinding"})  # a tenant may reach the devices
EARLY_MS = 1_000  # an exposure may begin so much before the start ...
EARLY_END_MS = 30_000  # by the round trip of the order that told the end, at most its time-out
LATE_MS = 2_000  # ... and end so much after its grant, or after its agent woke up


@dataclass(frozen=True, slots=True)
class Row:
    """One allocation with one mask word of its booking."""

    id: str
    reservation_id: str
    node_id: str
    generation: int
    live: bool
    bind: str
    agreed: str
    ordered_ms: int | None
    bound_ms: int | None
    bound_boot: str | None
    grant_until_ms: int | None
    word: int | None
    mask: int | None
    start_ms: int | None
    end_ms: int | None
    booked: bool | None  # 0 or 1 on SQLite
    booked_node: str | None


@dataclass(frozen=True, slots=True)
class Res:
    """One reservation."""

    id: str
    pool_id: str
    state: str
    size: int
    shape: str
    grouping: str
    agreed: str
    start_ms: int
    duration_ms: int
    generation: int
    version: int


@dataclass(frozen=True, slots=True)
class Host:
    """One node."""

    pool_id: str
    version: int
    boot_id: str | None
    seq: int  # of its newest report in this boot
    past_boots: frozenset[str]
    atoms: int  # mask


@dataclass(frozen=True, slots=True)
class Picture:
    """The rows that can matter: reservations that have not ended, allocations with anything left of them."""

    reservations: Mapping[str, Res]
    rows: tuple[Row, ...]
    nodes: Mapping[str, "Host"]

    @classmethod
    def of(cls, connection: Connection) -> "Picture":
        """Read the database."""
        rows = connection.exec_driver_sql(
            "SELECT a.id, a.reservation_id, a.node_id, a.generation, a.live, a.bind_state, a.agreed, a.ordered_ms, "
            "a.bound_ms, a.bound_boot, a.grant_until_ms, b.word, b.mask, b.start_ms, b.end_ms, b.live, b.node_id "
            "FROM allocation a LEFT JOIN booking b ON b.allocation_id = a.id "
            "WHERE a.live OR b.live OR a.bind_state IN ('binding', 'bound', 'unbinding') ORDER BY a.id, b.word"
        )
        found = connection.exec_driver_sql(
            "SELECT id, pool_id, state, size, shape, grouping, agreed, start_ms, duration_ms, generation, "
            "version FROM reservation WHERE state <> 'ended' OR id IN (SELECT reservation_id FROM allocation "
            "WHERE live OR bind_state IN ('binding', 'bound', 'unbinding')) ORDER BY id"
        )
        atoms: defaultdict[str, int] = defaultdict(int)
        for node_id, number in connection.exec_driver_sql("SELECT node_id, number FROM atom"):
            atoms[node_id] |= 1 << number
        told = connection.exec_driver_sql("SELECT id, pool_id, version, boot_id, seq, past_boots FROM node")
        nodes = {
            node_id: Host(pool_id, version, boot_id, seq, frozenset(json.loads(past)), atoms[node_id])
            for node_id, pool_id, version, boot_id, seq, past in told
        }
        return cls({row[0]: Res(*row) for row in found}, tuple(Row(*row) for row in rows), nodes)


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
            *_bookings(picture),
            *_gangs(picture),
            *_activity(picture, now_ms),
            *self._series(connection),
            *map(str, charges(connection)),
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


def _bookings(picture: Picture) -> Iterator[str]:
    by_word: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in picture.rows:
        if row.live and not row.booked:
            yield f"I02 {row.id} is a member without a live booking"
        if row.booked and not row.live:
            yield f"I03 {row.id} is no member and has a live booking"
        if row.word is None:
            continue
        by_word[row.node_id, row.word].append(row)
        if row.booked_node != row.node_id:
            yield f"I05 {row.id} is on {row.node_id} and booked on {row.booked_node}"
        if (_mask(row) << (63 * row.word)) & ~picture.nodes[row.node_id].atoms:
            yield f"I05 {row.id} books atoms that {row.node_id} never had"
    for rows in by_word.values():
        for one, other in combinations(rows, 2):
            if one.id != other.id and _mask(one) & _mask(other):
                yield from _shared(one, other)


def _shared(one: Row, other: Row) -> Iterator[str]:
    if one.booked and other.booked and _from(one) < _to(other) and _from(other) < _to(one):
        yield f"I01 {one.id} and {other.id} book the same atom of {one.node_id} at one time"
    if one.bind in HELD and other.bind in HELD:
        yield f"I09 {one.id} and {other.id} are both told of the same atom of {one.node_id}"


def _mask(row: Row) -> int:
    return row.mask or 0


def _from(row: Row) -> int:
    return row.start_ms or 0


def _to(row: Row) -> int:
    return row.end_ms or 0


def _gangs(picture: Picture) -> Iterator[str]:
    members: defaultdict[str, dict[str, list[Row]]] = defaultdict(dict)
    for row in picture.rows:
        if row.live:
            members[row.reservation_id].setdefault(row.id, []).append(row)
    for res in picture.reservations.values():
        gang = members[res.id]
        if res.state in {"pending", "ended"}:
            if gang:
                yield f"I03 {res.id} is {res.state} and has {len(gang)} members"
            continue
        nodes = {rows[0].node_id for rows in gang.values()}
        if len(gang) != res.size or len(nodes) != res.size:
            yield f"I02 {res.id} is {res.state} with {len(gang)} members on {len(nodes)} nodes, not {res.size}"
        yield from _agreement(res, gang)
        yield from _members(picture, res, gang)


def _agreement(res: Res, gang: Mapping[str, list[Row]]) -> Iterator[str]:
    """The whole gang on one value of each key it was booked with; each segment on one value of its own."""
    asked, agreed = json.loads(res.grouping), json.loads(res.agreed)
    keys = [key for key, _ in agreed]
    if keys[: len(asked["required"])] != asked["required"]:
        yield f"I02 {res.id} was booked with {keys}, which lack some of {asked['required']}"
    segments: defaultdict[str, int] = defaultdict(int)
    for rows in gang.values():
        shown = json.loads(rows[0].agreed)
        if shown[: len(agreed)] != agreed:
            yield f"I02 {rows[0].id} was booked with {shown}, its gang {res.id} with {agreed}"
        if asked["segment_key"]:
            segments[json.dumps(shown)] += 1
    for shown, members in segments.items():
        if members % asked["segment_size"]:
            yield f"I02 {res.id} has {members} members in a segment of {shown}, not {asked['segment_size']} each"


def _members(picture: Picture, res: Res, gang: Mapping[str, list[Row]]) -> Iterator[str]:
    ends = {_to(row) for rows in gang.values() for row in rows}
    if len(ends) > 1 or any(end < res.start_ms + res.duration_ms for end in ends):
        yield f"I02 {res.id}: its members do not share one window"
    for rows in gang.values():
        row = rows[0]
        count = sum(entry["count"] for entry in json.loads(res.shape)["entries"])
        if sum(_mask(one).bit_count() for one in rows) != count:
            yield f"I02 {row.id} does not give the {count} devices of {res.id}"
        if not 1 <= row.generation <= res.generation:
            yield f"I16 {row.id} is of generation {row.generation}, {res.id} of {res.generation}"
        if picture.nodes[row.node_id].pool_id != res.pool_id:
            yield f"I06 {row.id} is on {row.node_id}, outside the pool of {res.id}"


def _activity(picture: Picture, now_ms: int) -> Iterator[str]:
    for row in picture.rows:
        res = picture.reservations.get(row.reservation_id)
        if res is None or not row.live:
            continue
        if row.bind in {"binding", "bound"} and (row.ordered_ms is None or row.ordered_ms < res.start_ms):
            yield f"I04 {row.id} was told to bind before the start of {res.id}"
        if res.state != "active":
            continue
        # A node lets go by itself at the end that it was told, which may be a little early.
        is_over = row.bind == "released" and now_ms >= (row.grant_until_ms or now_ms) - EARLY_END_MS
        is_bound = is_over or row.bind in {"bound", "lost"}
        if not is_bound or row.bound_ms is None or row.bound_ms < res.start_ms:
            yield f"I04 {res.id} is active, and {row.id} is {row.bind}"
        elif row.bound_boot not in {picture.nodes[row.node_id].boot_id, *picture.nodes[row.node_id].past_boots}:
            yield f"I04 {row.id} is bound in a boot that {row.node_id} never reported"


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
        start_ms = _from(told)
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
