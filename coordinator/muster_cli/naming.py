"""Reservations by the names that their owners gave them, wherever a command takes an id."""

from typing import Final

from muster_cli.client import part
from muster_cli.failures import Exit, Failure
from muster_cli.session import Session
from muster_cli.waiting import STATES

PATH: Final = "/v1/reservations"
_ID: Final = "rsv_"
_SHOWN_MAX: Final = 20  # of one name: whoever has more knows how to list them

LIVE: Final = ",".join(state for state in STATES if state != "ended")
"""Every state but the last, as the API is asked for them."""


def reservation_path(session: Session, name: str) -> str:
    """Return the path of a reservation that is given by its id, or by its name.

    A name means the one that has not ended, and where none is left, the last that had it. One that nobody has is sent
    as it is: the coordinator says that there is no such reservation.

    Raises:
        Failure: Several that have not ended have this name.
    """
    return f"{PATH}/{part(name if name.startswith(_ID) else _id_of(session, name))}"


def _id_of(session: Session, name: str) -> str:
    live = session.client.pages(PATH, {"name": name, "state": LIVE}, None).document["items"]
    if len(live) > 1:
        said = [f"  {one['id']}  {one['tenantId']}  {one['state']}" for one in live[:_SHOWN_MAX]]
        raise Failure(f"{len(live)} reservations are named {name!r}: give an id.", Exit.CONFLICT, said)
    chosen = live or session.client.pages(PATH, {"name": name}, None).document["items"]
    return str(chosen[-1]["id"]) if chosen else name
