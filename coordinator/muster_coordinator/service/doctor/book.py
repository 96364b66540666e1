"""The book itself: bookings, gangs, and what is bound, by plain SQL and short Python."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from sqlalchemy import Connection

from muster_coordinator.service.doctor.finding import Finding
from muster_shared.time import Window

HELD = frozenset({"binding", "bound", "unbinding"})  # a tenant may reach the devices
_EARLY_END_MS = (
    30_000  # a node ends so much early, by the round trip of the order that told the end, at most its time-out
)


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


def bookings(picture: Picture) -> Iterator[Finding]:
    """Compare members with their bookings, and bookings with each other and with what their nodes have."""
    by_word: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in picture.rows:
        if row.live and not row.booked:
            yield Finding("I02", row.id, "is a member without a live booking")
        if row.booked and not row.live:
            yield Finding("I03", row.id, "is no member and has a live booking")
        if row.word is None:
            continue
        by_word[row.node_id, row.word].append(row)
        if row.booked_node != row.node_id:
            yield Finding("I05", row.id, f"is on {row.node_id} and booked on {row.booked_node}")
        if (_mask(row) << (63 * row.word)) & ~picture.nodes[row.node_id].atoms:
            yield Finding("I05", row.id, f"books atoms that {row.node_id} never had")
    for rows in by_word.values():
        for one, other in combinations(rows, 2):
            if one.id != other.id and _mask(one) & _mask(other):
                yield from _shared(one, other)


def _shared(one: Row, other: Row) -> Iterator[Finding]:
    if one.booked and other.booked and _window(one).overlaps(_window(other)):
        yield Finding("I01", one.id, f"and {other.id} book the same atom of {one.node_id} at one time")
    if one.bind in HELD and other.bind in HELD:
        yield Finding("I09", one.id, f"and {other.id} are both told of the same atom of {one.node_id}")


def _mask(row: Row) -> int:
    return row.mask or 0


def _window(row: Row) -> Window:
    return Window(starts_at(row), ends_at(row))


def starts_at(row: Row) -> int:
    """Return when its booking begins."""
    return row.start_ms or 0


def ends_at(row: Row) -> int:
    """Return when its booking is over."""
    return row.end_ms or 0


def gangs(picture: Picture) -> Iterator[Finding]:
    """Look whether each gang is whole, on distinct nodes, of one window, and as it was booked."""
    members: defaultdict[str, dict[str, list[Row]]] = defaultdict(dict)
    for row in picture.rows:
        if row.live:
            members[row.reservation_id].setdefault(row.id, []).append(row)
    for res in picture.reservations.values():
        gang = members[res.id]
        if res.state in {"pending", "ended"}:
            if gang:
                yield Finding("I03", res.id, f"is {res.state} and has {len(gang)} members")
            continue
        nodes = {rows[0].node_id for rows in gang.values()}
        if len(gang) != res.size or len(nodes) != res.size:
            yield Finding(
                "I02", res.id, f"is {res.state} with {len(gang)} members on {len(nodes)} nodes, not {res.size}"
            )
        yield from _agreement(res, gang)
        yield from _members(picture, res, gang)


def _agreement(res: Res, gang: Mapping[str, list[Row]]) -> Iterator[Finding]:
    """The whole gang on one value of each key it was booked with; each segment on one value of its own."""
    asked, agreed = json.loads(res.grouping), json.loads(res.agreed)
    keys = [key for key, _ in agreed]
    if keys[: len(asked["required"])] != asked["required"]:
        yield Finding("I02", res.id, f"was booked with {keys}, which lack some of {asked['required']}")
    segments: defaultdict[str, int] = defaultdict(int)
    for rows in gang.values():
        shown = json.loads(rows[0].agreed)
        if shown[: len(agreed)] != agreed:
            yield Finding("I02", rows[0].id, f"was booked with {shown}, its gang {res.id} with {agreed}")
        if asked["segment_key"]:
            segments[json.dumps(shown)] += 1
    for shown, members in segments.items():
        if members % asked["segment_size"]:
            yield Finding(
                "I02", res.id, f"has {members} members in a segment of {shown}, not {asked['segment_size']} each"
            )


def _members(picture: Picture, res: Res, gang: Mapping[str, list[Row]]) -> Iterator[Finding]:
    ends = {ends_at(row) for rows in gang.values() for row in rows}
    if len(ends) > 1 or any(end < res.start_ms + res.duration_ms for end in ends):
        yield Finding("I02", res.id, "its members do not share one window")
    for rows in gang.values():
        row = rows[0]
        count = sum(entry["count"] for entry in json.loads(res.shape)["entries"])
        if sum(_mask(one).bit_count() for one in rows) != count:
            yield Finding("I02", row.id, f"does not give the {count} devices of {res.id}")
        if not 1 <= row.generation <= res.generation:
            yield Finding("I16", row.id, f"is of generation {row.generation}, {res.id} of {res.generation}")
        if picture.nodes[row.node_id].pool_id != res.pool_id:
            yield Finding("I06", row.id, f"is on {row.node_id}, outside the pool of {res.id}")


def activity(picture: Picture, now_ms: int) -> Iterator[Finding]:
    """Look whether what is active is bound, by its own nodes, and since its start."""
    for row in picture.rows:
        res = picture.reservations.get(row.reservation_id)
        if res is None or not row.live:
            continue
        if row.bind in {"binding", "bound"} and (row.ordered_ms is None or row.ordered_ms < res.start_ms):
            yield Finding("I04", row.id, f"was told to bind before the start of {res.id}")
        if res.state != "active":
            continue
        # A node lets go by itself at the end that it was told, which may be a little early.
        is_over = row.bind == "released" and now_ms >= (row.grant_until_ms or now_ms) - _EARLY_END_MS
        is_bound = is_over or row.bind in {"bound", "lost"}
        if not is_bound or row.bound_ms is None or row.bound_ms < res.start_ms:
            yield Finding("I04", res.id, f"is active, and {row.id} is {row.bind}")
        elif row.bound_boot not in {picture.nodes[row.node_id].boot_id, *picture.nodes[row.node_id].past_boots}:
            yield Finding("I04", row.id, f"is bound in a boot that {row.node_id} never reported")
