"""Limits are set, lifted and listed. What is held above a new limit stays; nothing more is let in."""

from sqlalchemy import Connection, delete, func, insert, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.service.accounts.bodies import QuotaRemoval, QuotaRequest, QuotaView
from muster_coordinator.service.accounts.charge import allowances
from muster_coordinator.service.admit import DEFAULT_POOL
from muster_coordinator.service.draft import pool_missing
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.ledger_tables import QUOTA
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import EVENT
from muster_shared.devices import MILLI_PER_GPU
from muster_shared.errors import Code, Problem, invalid

_ROUNDING = 1e-6  # milli-GPU: 0.1 is no binary fraction


def set_quota(connection: Connection, at: Moment, request: QuotaRequest) -> QuotaView:
    """Limit what a tenant holds in a pool at once. Setting the same limit again changes nothing.

    Raises:
        Problem: `NOT_FOUND` for the pool; `INVALID_INPUT` for less than a thousandth of a GPU.
    """
    pool_row = _locked_pool(connection, request.pool_id)
    milli = round(request.gpus * MILLI_PER_GPU)
    if abs(request.gpus * MILLI_PER_GPU - milli) > _ROUNDING:
        raise invalid("gpus", "GPUs are counted to the thousandth, such as 0.125")
    former = _limit(connection, request.tenant_id, pool_row.id)
    if former != milli:
        mine = QUOTA.c.tenant_id == request.tenant_id, QUOTA.c.pool_id == pool_row.id
        limited = {"limit_milli": milli, "changed_ms": at.ms}
        if former is None:
            named = {"tenant_id": request.tenant_id, "pool_id": pool_row.id}
            connection.execute(insert(QUOTA).values(**named, **limited))
        else:
            connection.execute(update(QUOTA).where(*mine).values(**limited))
        _tell(connection, at, pool_row, request.tenant_id, former, milli, request.reason)
    (view,) = quotas(connection, request.tenant_id, pool_row.id)
    return view


def remove_quota(connection: Connection, at: Moment, request: QuotaRemoval) -> None:
    """Lift a tenant's limit.

    Raises:
        Problem: `NOT_FOUND` for the pool, and where there is no limit.
    """
    pool_row = _locked_pool(connection, request.pool_id)
    former = _limit(connection, request.tenant_id, pool_row.id)
    if former is None:
        detail = f"{request.tenant_id} has no limit in the pool {pool_row.name!r}; `muster quota list` shows all"
        raise Problem(Code.NOT_FOUND, detail)
    mine = QUOTA.c.tenant_id == request.tenant_id, QUOTA.c.pool_id == pool_row.id
    connection.execute(delete(QUOTA).where(*mine))
    _tell(connection, at, pool_row, request.tenant_id, former, None, request.reason)


def quotas(connection: Connection, tenant_id: str | None = None, pool_id: str | None = None) -> list[QuotaView]:
    """Return limits with what is held of them, by pool and tenant.

    Raises:
        Problem: `NOT_FOUND` for the pool.
    """
    pools = read.pools(connection) if pool_id is None else [_known_pool(connection, pool_id)]
    views: list[QuotaView] = []
    for pool_row in pools:
        wanted = select(QUOTA).where(QUOTA.c.pool_id == pool_row.id).order_by(QUOTA.c.tenant_id)
        if tenant_id is not None:
            wanted = wanted.where(QUOTA.c.tenant_id == tenant_id)
        rows = connection.execute(wanted).all()
        held = allowances(connection, pool_row.id, [row.tenant_id for row in rows])
        views += [
            QuotaView(
                tenant_id=row.tenant_id,
                pool_id=pool_row.id,
                pool_name=pool_row.name,
                gpus=row.limit_milli / MILLI_PER_GPU,
                used_gpus=held[row.tenant_id].used_milli / MILLI_PER_GPU,
                changed=row.changed_ms,
            )
            for row in rows
        ]
    return views


def _tell(
    connection: Connection,
    at: Moment,
    pool_row: PoolRow,
    tenant_id: str,
    former: int | None,
    limit: int | None,
    reason: str | None,
) -> None:
    subject = f"quota/{pool_row.id}/{tenant_id}"
    told = connection.execute(select(func.max(EVENT.c.version)).where(EVENT.c.subject == subject)).scalar()
    data = {"tenantId": tenant_id, "formerMilli": former, "limitMilli": limit, "reason": reason}
    fact = Fact("quota.changed", data)
    commit.emit(connection, at, fact, subject=subject, version=(told or 0) + 1, pool_id=pool_row.id)
    commit.pool_changed(connection, pool_row.id, ())  # who waits for the quota is tried again


def _limit(connection: Connection, tenant_id: str, pool_id: str) -> int | None:
    mine = QUOTA.c.tenant_id == tenant_id, QUOTA.c.pool_id == pool_id
    return connection.execute(select(QUOTA.c.limit_milli).where(*mine)).scalar()


def _locked_pool(connection: Connection, name: str | None) -> PoolRow:
    return _known_pool(connection, name or DEFAULT_POOL, lock=True)


def _known_pool(connection: Connection, name: str, *, lock: bool = False) -> PoolRow:
    pool_row = read.pool(connection, name, lock=lock)
    if pool_row is None:
        raise pool_missing(name)
    return pool_row
