"""The only place that reads time or chance. A service is given a `Moment` and reads neither."""

import secrets
import time
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from muster_shared.ids import Prefix, type_id


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant and the chance that goes with it: all that a transaction body may know of the outside."""

    ms: int  # the coordinator's clock, milliseconds UTC
    chance: Random = field(default_factory=Random)

    def new_id(self, prefix: Prefix) -> str:
        """Return an id that nobody has had."""
        return type_id(prefix, self.ms, self.chance.getrandbits(74))

    def new_seed(self) -> int:
        """Return a seed to record with a decision, 0 .. 2**31."""
        return self.chance.getrandbits(31)


class Clock(Protocol):
    """The port for time and chance. Living implementations: the system's, and the simulation's."""

    def moment(self) -> Moment:
        """Return now."""
        ...

    def new_secret(self) -> str:
        """Return 256 bits that nobody can guess."""
        ...


class SystemClock:
    """The machine's clock and the operating system's randomness."""

    def __init__(self) -> None:
        self._chance = Random(secrets.randbits(128))  # noqa: S311 - ids and ties, never secrets

    def moment(self) -> Moment:
        """Return now."""
        return Moment(time.time_ns() // 1_000_000, self._chance)  # noqa: TID251 - this is the clock

    def new_secret(self) -> str:
        """Return 256 bits that nobody can guess."""
        return secrets.token_urlsafe(32)
