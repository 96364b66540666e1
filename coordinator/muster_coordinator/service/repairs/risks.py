"""What is wrong with a reservation's members, as its row keeps it and its owner is told."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, RowMapping, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import OnMemberLoss, Reservation, State
from muster_coordinator.core.repair.check import Risk
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.store import commit
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.tables import RESERVATION
from muster_shared.codec import dumps, loads

_NEXT: Final[Mapping[OnMemberLoss, str]] = {
    "notify": "`muster repair {id}` puts another node in its place, `muster release {id}` ends the reservation",
    "replace": "a free node of the same topology value takes over as soon as the member is surely dead",
    "release": "the reservation ends as soon as the member is surely dead",
}


@dataclass(frozen=True, slots=True)
class KnownRisk:
    """A risk that was taken down."""

    node_id: str
    code: str
    since_ms: int
    text: str  # the node's name, and what is wrong


def known_risks(row: RowMapping) -> list[KnownRisk]:
    """Return what a reservation's row says is wrong, in the order of the texts."""
    return [KnownRisk(*one) for one in loads(row["risks"])]


def written_risks(known: Iterable[KnownRisk]) -> str:
    """Return risks as a reservation's row keeps them."""
    return dumps([[one.node_id, one.code, one.since_ms, one.text] for one in known]).decode()


def risk_texts(row: RowMapping) -> list[str]:
    """Return what is wrong with a reservation, for people."""
    return [one.text for one in known_risks(row)]


def mark(
    connection: Connection,
    at: Moment,
    reservation: Reservation,
    row: RowMapping,
    found: Collection[Risk],
    members: Snapshot,
) -> None:
    """Keep what a check found, and tell what is new in it or gone.

    Args:
        connection: In a transaction that holds the reservation's row.
        at: Now.
        reservation: Placed or active.
        row: Of the reservation, as it was read in this transaction.
        found: What is wrong now, each with the instant since when.
        members: The nodes of its members.
    """
    before = known_risks(row)
    after = sorted((_taken_down(risk, members) for risk in found), key=lambda one: one.text)
    if [one.text for one in before] == [one.text for one in after]:
        return
    if reservation.state is State.ACTIVE:
        facts = _of_active(reservation, before, after)
    else:
        kind = "reservation.at_risk" if after else "reservation.risk_cleared"
        facts = [Fact(kind, {"risks": [one.text for one in after]})]
    for fact in facts:
        commit.record(connection, at, reservation, fact, risks=written_risks(after))
    if not facts:
        kept = update(RESERVATION).where(RESERVATION.c.id == reservation.id)
        connection.execute(kept.values(risks=written_risks(after)))


def _of_active(reservation: Reservation, before: list[KnownRisk], after: list[KnownRisk]) -> list[Fact]:
    """Return one event for each member that is newly lost, or one for those that are well again."""
    known = {one.node_id for one in before}
    next_step = _NEXT[reservation.on_member_loss].format(id=reservation.id)
    fresh = [one for one in after if one.node_id not in known]
    if fresh:
        return [
            Fact("reservation.degraded", {"nodeId": one.node_id, "risks": [one.text], "next": next_step})
            for one in fresh
        ]
    gone = known - {one.node_id for one in after}
    return [Fact("reservation.recovered", {"risks": [one.text for one in after]})] if gone else []


def _taken_down(risk: Risk, members: Snapshot) -> KnownRisk:
    view = members.views.get(risk.node_id)
    name = risk.node_id if view is None else view.node.name
    assert risk.since_ms is not None, "a check dates what it finds"
    return KnownRisk(risk.node_id, risk.code, risk.since_ms, f"{name}: {risk.sentence}")
