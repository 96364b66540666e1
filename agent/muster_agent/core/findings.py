"""What an operator should know of a node and what holds nothing: signs in, findings out, without flapping.

A fold over readings. What the signs are is in `signs`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from muster_agent.core.readings import one_line
from muster_shared.wire import FINDINGS_MAX, Finding


@dataclass(frozen=True, slots=True)
class Sign:
    """Something that one reading shows."""

    rank: int  # which findings go first where there are too many: the lowest
    cause: str
    message: str
    device: str | None = None
    code: int | None = None
    count: int = 0
    former: str | None = None
    now: str | None = None
    lasts_ms: int = 0  # a finding only once it has been shown for so long
    gone_ms: int = 0  # and until it has been gone for so long

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes two signs one finding."""
        return (self.cause, self.device or "", -1 if self.code is None else self.code)


@dataclass(frozen=True, slots=True)
class _Seen:
    sign: Sign
    since_ms: int  # wall clock, for people
    first_boot_ms: int
    last_boot_ms: int
    told: bool

    def still(self, sign: Sign, boot_ms: int) -> "_Seen":
        told = self.told or boot_ms - self.first_boot_ms >= sign.lasts_ms
        return replace(self, sign=sign, last_boot_ms=boot_ms, told=told)


@dataclass(frozen=True, slots=True)
class Findings:
    """All signs of late. A restart of the agent begins anew: signs are seen again, or are over."""

    _seen: tuple[_Seen, ...] = ()

    def after(self, signs: Iterable[Sign], now_ms: int, boot_ms: int) -> "Findings":
        """Fold the signs of one reading in.

        Args:
            signs: In any order; of equal keys the last counts.
            now_ms: Wall clock, milliseconds UTC.
            boot_ms: Boot clock, milliseconds; never falls.
        """
        shown = {sign.key: sign for sign in signs}
        before = {seen.sign.key: seen for seen in self._seen}
        lasting = [
            seen.still(shown[key], boot_ms) if key in shown else seen
            for key, seen in before.items()
            if key in shown or (seen.told and boot_ms - seen.last_boot_ms < seen.sign.gone_ms)
        ]
        fresh = [
            _Seen(sign, now_ms, boot_ms, boot_ms, told=sign.lasts_ms <= 0)
            for key, sign in shown.items()
            if key not in before
        ]
        return Findings((*lasting, *fresh))

    @property
    def told(self) -> list[Finding]:
        """What the inventory says, the gravest first; where that is too much, the last one counts the rest."""
        told = sorted((seen for seen in self._seen if seen.told), key=lambda seen: (seen.sign.rank, seen.sign.key))
        if len(told) <= FINDINGS_MAX:
            return [_finding(seen) for seen in told]
        kept, rest = told[: FINDINGS_MAX - 1], told[FINDINGS_MAX - 1 :]
        since_ms = min(seen.since_ms for seen in rest)
        more = Finding(cause="more", count=len(rest), since_ms=since_ms, message=f"and {len(rest)} more findings")
        return [*(_finding(seen) for seen in kept), more]


def at_least(count: int) -> int:
    """Round a count down to a power of two, so that a storm changes what is told a few times only."""
    return 1 << (count.bit_length() - 1) if count > 0 else 0


def _finding(seen: _Seen) -> Finding:
    sign = seen.sign
    return Finding(
        cause=sign.cause,
        device=sign.device,
        code=sign.code,
        count=sign.count,
        since_ms=seen.since_ms,
        former=sign.former,
        now=sign.now,
        message=one_line(sign.message),
    )
