"""Turns answers about changed reservations into rows. Pure, as `rows` is."""

from muster_cli.client import Answer, Document
from muster_cli.moments import moment
from muster_cli.rows import Table, reservation, table


def extended(answer: Answer, *, wide: bool) -> list[Table]:
    """The reservation, and how long it could last at most."""
    found: Document = answer.document["extension"]
    asked = "" if found.get("end") is None else "yes" if found["fits"] else "no"
    ends = (moment(found.get(name), answer.now_ms, exact=wide) for name in ("end", "longestEnd"))
    told = table("FITS UNTIL LONGEST-END THEN", [(asked, *ends, found["blockedBy"]["message"])])
    return [*reservation(answer, wide=wide), told]


def shrunk(answer: Answer, *, wide: bool) -> list[Table]:
    """The reservation, and which nodes leave."""
    gone = table("GIVEN-BACK", ([name] for name in answer.document["dropped"]))
    return [*reservation(answer, wide=wide), gone]


def repaired(answer: Answer, *, wide: bool) -> list[Table]:
    """The reservation, and who takes over for whom."""
    told: Document = answer.document["repair"]
    plan = table("LEAVING JOINING", [] if told["sound"] else [(told.get("leaving"), told.get("joining"))])
    return [*reservation(answer, wide=wide), plan]
