"""The ledger of quota against the reservations themselves."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlalchemy import Connection

from muster_coordinator.service.doctor.finding import Finding
from muster_shared.codec import loads
from muster_shared.devices import MILLI_PER_GPU

_OWED = frozenset({"placed", "binding", "active", "ending"})


@dataclass(frozen=True, slots=True)
class _Res:
    id: str
    tenant_id: str
    pool_id: str
    state: str
    repairing: bool
    spot: bool
    size: int
    shape: str
    ended_ms: int | None


@dataclass(frozen=True, slots=True)
class _Charge:
    number: int
    tenant_id: str
    pool_id: str
    milli: int
    charged_ms: int
    returned_ms: int | None


def charges(connection: Connection) -> Iterator[Finding]:
    """Compare every charge with its reservation: one is open as long as nodes are held or owed, and no longer.

    Cost: in all reservations that ever were.
    """
    booked: defaultdict[str, list[_Charge]] = defaultdict(list)
    for row in connection.exec_driver_sql(
        "SELECT reservation_id, number, tenant_id, pool_id, milli, charged_ms, returned_ms FROM charge "
        "ORDER BY reservation_id, number"
    ):
        booked[row[0]].append(_Charge(*row[1:]))
    for row in connection.exec_driver_sql(
        "SELECT id, tenant_id, pool_id, state, repairing, spot, size, shape, ended_ms FROM reservation ORDER BY id"
    ):
        one = _Res(*row)
        yield from (Finding("I23", one.id, said) for said in _of_one(one, booked[one.id]))


def _of_one(one: _Res, mine: Sequence[_Charge]) -> Iterator[str]:
    is_owed = not one.spot and (one.state in _OWED or (one.state == "pending" and bool(one.repairing)))
    open_ = [charge for charge in mine if charge.returned_ms is None]
    if len(open_) != is_owed:
        yield f"is {one.state} with {len(open_)} open charges, not {int(is_owed)}"
    yield from _in_order(one, mine)
    asked = _milli_asked(one)
    for charge in mine:
        if (charge.tenant_id, charge.pool_id) != (one.tenant_id, one.pool_id):
            yield f"is charged to {charge.tenant_id} in {charge.pool_id}"
    for charge in open_:
        if charge.milli != asked if asked is not None else charge.milli <= 0:
            yield f"is charged {charge.milli} milli-GPU, not {asked or 'more'}"


def _in_order(one: _Res, mine: Sequence[_Charge]) -> Iterator[str]:
    """Each charge is given back before the next, and the last one no later than the reservation has ended."""
    if [charge.number for charge in mine] != list(range(1, len(mine) + 1)):
        yield "lacks one of its charges"
    for former, later in pairwise(mine):
        if former.returned_ms is None or former.returned_ms > later.charged_ms:
            yield f"has its charges {former.number} and {later.number} at one time"
    for charge in mine:
        if charge.returned_ms is not None and charge.returned_ms < charge.charged_ms:
            yield f"gave charge {charge.number} back before it had it"
    last_ms = mine[-1].returned_ms if mine else None
    if last_ms is not None and one.ended_ms is not None and last_ms > one.ended_ms:
        yield "gave its charge back after it had ended"


def _milli_asked(one: _Res) -> int | None:
    """Return what whole GPUs are charged; None where shares are among them, whose size the first nodes decided."""
    entries: list[Mapping[str, object]] = loads(one.shape)["entries"]
    if any(entry["kind"] != "gpu" for entry in entries):
        return None
    return sum(int(str(entry["count"])) for entry in entries) * one.size * MILLI_PER_GPU
