"""The states, the moves between them, and the steps that make the moves. The diagram is drawn from `MOVES`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from muster_coordinator.core.model import EndReason, State


class Move(StrEnum):
    """Why a reservation changes its state, or its members within one."""

    PLACE = "place"
    REPAIR = "repair"
    MOVE = "move"
    UNPLACE = "unplace"
    START = "start"
    REPLACE = "replace"
    SHRINK = "shrink"
    ACTIVATE = "activate"
    END = "end"
    FREE = "free"


MOVES: Final[dict[tuple[State, Move], State]] = {
    (State.PENDING, Move.PLACE): State.PLACED,
    (State.PENDING, Move.END): State.ENDED,
    (State.PLACED, Move.REPAIR): State.PLACED,
    (State.PLACED, Move.SHRINK): State.PLACED,
    (State.PLACED, Move.MOVE): State.PLACED,  # its owner wants another window
    (State.PLACED, Move.UNPLACE): State.PENDING,
    (State.PLACED, Move.START): State.BINDING,
    (State.PLACED, Move.END): State.ENDED,  # nothing was ever handed over
    (State.BINDING, Move.REPLACE): State.BINDING,
    (State.BINDING, Move.SHRINK): State.BINDING,
    (State.BINDING, Move.UNPLACE): State.PENDING,
    (State.BINDING, Move.ACTIVATE): State.ACTIVE,
    (State.BINDING, Move.END): State.ENDING,
    (State.ACTIVE, Move.SHRINK): State.ACTIVE,
    (State.ACTIVE, Move.REPLACE): State.BINDING,  # not every member is bound any more
    (State.ACTIVE, Move.END): State.ENDING,
    (State.ENDING, Move.FREE): State.ENDED,
}
"""Every legal move. Source: design, section 3."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Give up: the latest start, or the end of the window, has passed without a placement or a bind."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """The asked start has passed while it was pending: from now on it waits for the first moment that fits."""


@dataclass(frozen=True, slots=True)
class Check:
    """Look whether the booking is still sound, and repair it where it is not; then start it if `starting`."""

    starting: bool


@dataclass(frozen=True, slots=True)
class Order:
    """Tell these members' nodes to bind: their atoms are free now."""

    allocation_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """These members did not bind in time, or cannot: find others in their place."""

    allocation_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Activate:
    """Every member is bound for its current generation."""


@dataclass(frozen=True, slots=True)
class End:
    """Tell every member to let go."""

    reason: EndReason


@dataclass(frozen=True, slots=True)
class Free:
    """Every member has let go: the reservation has ended."""


Step = Expire | Requeue | Check | Order | Replace | Activate | End | Free


class IllegalMoveError(Exception):
    """A move that the table does not know: a bug in the caller."""


def moved(state: State, move: Move) -> State:
    """Return the state after a move.

    Raises:
        IllegalMoveError: The table has no such move.
    """
    try:
        return MOVES[state, move]
    except KeyError:
        raise IllegalMoveError(f"{state} has no move {move}") from None
