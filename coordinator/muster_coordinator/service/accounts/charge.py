"""The quota's ledger: a gang is charged whole with its first placement, and given back once, on whatever ends it.

Whoever calls holds the pool's row, so that nobody else charges or returns anything in it meanwhile. A repair, and a
placement that a repair had to give up, change no charge.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, String, bindparam, func, insert, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Reservation
from muster_coordinator.core.quota import Allowance, Verdict, shrunk_milli
from muster_coordinator.service.bodies import Condition
from muster_coordinator.store.ledger_tables import CHARGE, QUOTA
from muster_shared.devices import MILLI_PER_GPU
from muster_shared.errors import Code, Problem

# Built once: every placement runs them.
_OF_POOL: Final = bindparam("of_pool", type_=String)
_TENANTS: Final = bindparam("tenant_ids", type_=String, expanding=True)
_LIMITS: Final = select(QUOTA.c.tenant_id, QUOTA.c.limit_milli).where(
    QUOTA.c.pool_id == _OF_POOL, QUOTA.c.tenant_id.in_(_TENANTS)
)
_USED: Final = (
    select(CHARGE.c.tenant_id, func.sum(CHARGE.c.milli))
    .where(CHARGE.c.pool_id == _OF_POOL, CHARGE.c.tenant_id.in_(_TENANTS), CHARGE.c.returned_ms.is_(None))
    .group_by(CHARGE.c.tenant_id)
)
_NEW_CHARGE: Final = insert(CHARGE)


@dataclass(frozen=True, slots=True)
class OverQuota:
    """Nodes could be had, and the tenant's limit stands against it."""

    tenant_id: str
    milli: int  # asked
    limit_milli: int
    never: bool  # it is more than the limit, whatever else the tenant holds

    @property
    def sentence(self) -> str:
        """What its owner is told. Without what the tenant holds now: that is another number each minute."""
        asked, limit = gpus_text(self.milli), gpus_text(self.limit_milli)
        if self.never:
            return f"asks for {asked} GPUs, and {self.tenant_id} may hold {limit} at once in this pool"
        return (
            f"asks for {asked} GPUs, and of the {limit} that {self.tenant_id} may hold at once in this pool too few "
            "are left; it is tried again when some are given back"
        )

    @property
    def condition(self) -> Condition:
        """Why a reservation waits."""
        return Condition(type="Unschedulable", reason="quotaExceeded", message=self.sentence)

    @property
    def problem(self) -> Problem:
        """The refusal of what no waiting could help."""
        advice = "ask for less, or ask an operator for a higher limit (`muster quota`)"
        return Problem(Code.QUOTA_EXCEEDED, f"{self.sentence}: {advice}")


def gpus_text(milli: int) -> str:
    """Write milli-GPU as GPUs: `8`, or `0.125`."""
    return f"{milli / MILLI_PER_GPU:.3f}".rstrip("0").rstrip(".")


def allowances(connection: Connection, pool_id: str, tenant_ids: Collection[str]) -> dict[str, Allowance]:
    """Return what each of these tenants may hold in a pool, and holds; what is held only where there is a limit."""
    named = sorted(set(tenant_ids))
    limits: dict[str, int] = {row[0]: row[1] for row in _rows(connection, _LIMITS, pool_id, named)}
    used: dict[str, int] = {}
    if limits:
        used = {row[0]: int(row[1]) for row in _rows(connection, _USED, pool_id, sorted(limits))}
    return {name: Allowance(limits.get(name), used.get(name, 0)) for name in named}


def judged(reservation: Reservation, milli: int, allowance: Allowance) -> OverQuota | None:
    """Return what stands against a gang of so many milli-GPU, or None. Spot takes what is free, whoever asks."""
    verdict = Verdict.FITS if reservation.spot else allowance.verdict(milli)
    if verdict is Verdict.FITS or allowance.limit_milli is None:
        return None
    return OverQuota(reservation.tenant_id, milli, allowance.limit_milli, verdict is Verdict.NEVER)


def refuse_never(connection: Connection, pool_id: str, tenant_id: str, milli: int) -> None:
    """Refuse what is more than all that a tenant may hold: no waiting could help.

    Raises:
        Problem: `QUOTA_EXCEEDED`.
    """
    allowance = allowances(connection, pool_id, [tenant_id])[tenant_id]
    if allowance.limit_milli is not None and allowance.verdict(milli) is Verdict.NEVER:
        raise OverQuota(tenant_id, milli, allowance.limit_milli, never=True).problem


def over_quota(connection: Connection, reservation: Reservation, milli: int) -> OverQuota | None:
    """Judge the first placement of a reservation, in the transaction that is about to make it.

    What is charged already, as through a failed repair, has passed.
    """
    found = allowances(connection, reservation.pool_id, [reservation.tenant_id])[reservation.tenant_id]
    if found.limit_milli is None or (reservation.generation and open_milli(connection, reservation.id) is not None):
        return None
    return judged(reservation, milli, found)


def charge(connection: Connection, at: Moment, reservation: Reservation, milli: int) -> None:
    """Charge a placement, unless the reservation is charged already."""
    if reservation.spot:
        return
    number = 0
    if reservation.generation:  # it was placed before
        if open_milli(connection, reservation.id) is not None:
            return
        number = _last_number(connection, reservation.id)
    connection.execute(_NEW_CHARGE, _row(at, reservation, milli, number + 1))


def charge_new(connection: Connection, at: Moment, made: Iterable[tuple[Reservation, int]]) -> None:
    """Charge reservations that are made in this transaction, each with its milli-GPU."""
    rows = [_row(at, reservation, milli, 1) for reservation, milli in made if not reservation.spot]
    if rows:
        connection.execute(_NEW_CHARGE, rows)


def charge_less(connection: Connection, at: Moment, reservation: Reservation, size: int) -> None:
    """Give back the part of the nodes that leave a gang: the old charge is returned, what stays is charged anew."""
    milli = open_milli(connection, reservation.id)
    if milli is None:
        return
    number = _last_number(connection, reservation.id)
    give_back(connection, at, reservation.id)
    less = shrunk_milli(milli, reservation.size, size)
    connection.execute(_NEW_CHARGE, _row(at, reservation, less, number + 1))


def give_back(connection: Connection, at: Moment, reservation_id: str) -> None:
    """Return what a reservation is charged. Only an open charge is: whoever comes second changes nothing."""
    open_ = CHARGE.c.reservation_id == reservation_id, CHARGE.c.returned_ms.is_(None)
    connection.execute(update(CHARGE).where(*open_).values(returned_ms=at.ms))


def open_milli(connection: Connection, reservation_id: str) -> int | None:
    """Return what a reservation is charged now, or None."""
    mine = CHARGE.c.reservation_id == reservation_id, CHARGE.c.returned_ms.is_(None)
    return connection.execute(select(CHARGE.c.milli).where(*mine)).scalar()


def _last_number(connection: Connection, reservation_id: str) -> int:
    mine = select(func.max(CHARGE.c.number)).where(CHARGE.c.reservation_id == reservation_id)
    return connection.execute(mine).scalar() or 0


def _row(at: Moment, reservation: Reservation, milli: int, number: int) -> dict[str, Any]:
    return {
        "reservation_id": reservation.id,
        "number": number,
        "tenant_id": reservation.tenant_id,
        "pool_id": reservation.pool_id,
        "milli": milli,
        "charged_ms": at.ms,
    }


def _rows(connection: Connection, wanted: Any, pool_id: str, tenant_ids: list[str]) -> list[Any]:  # noqa: ANN401 - any select
    return list(connection.execute(wanted, {"of_pool": pool_id, "tenant_ids": tenant_ids}).all())
