"""The whole examination: every rule that a look at one moment can judge."""

from collections.abc import Iterator

from sqlalchemy import Connection

from muster_coordinator.clock import Moment
from muster_coordinator.service.doctor.bodies import Diagnosis, FindingView
from muster_coordinator.service.doctor.book import Picture, activity, bookings, gangs
from muster_coordinator.service.doctor.events import versions
from muster_coordinator.service.doctor.finding import RULES, Finding
from muster_coordinator.service.doctor.ledger import charges
from muster_coordinator.service.doctor.usage import records
from muster_coordinator.store.engine import missing_guards

FINDINGS_MAX = 1_000
"""Told at once: whoever mends these looks again."""


def examine(connection: Connection, at: Moment) -> Diagnosis:
    """Look at everything, all of it at one moment, and write nothing.

    Cost: in all that ever was; seconds with a million reservations.
    """
    picture = Picture.of(connection)
    found = [*_found(connection, at, picture)]
    return Diagnosis(
        items=[
            FindingView(rule=one.rule, says=RULES[one.rule], subject=one.subject, message=one.message)
            for one in found[:FINDINGS_MAX]
        ],
        count=len(found),
        reservations=len(picture.reservations),
        nodes=len(picture.nodes),
    )


def _found(connection: Connection, at: Moment, picture: Picture) -> Iterator[Finding]:
    yield from (
        Finding("guards", guard, "is missing: nothing keeps two bookings apart") for guard in missing_guards(connection)
    )
    yield from bookings(picture)
    yield from gangs(picture)
    yield from activity(picture, at.ms)
    yield from charges(connection)
    yield from records(connection)
    yield from versions(connection)
