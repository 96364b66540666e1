"""The part of the API's table that is about what tenants may hold, and have used, and whether the books are right."""

from typing import Final

from muster_coordinator.api.handlers import accounts
from muster_coordinator.api.operation import Operation
from muster_coordinator.service.accounts.bodies import QuotaQuery, QuotaRemoval, QuotaRequest, QuotaView
from muster_coordinator.service.accounts.usage_bodies import UsageQuery, UsageRecords, UsageView
from muster_coordinator.service.bodies import Page
from muster_coordinator.service.doctor.bodies import Diagnosis
from muster_shared.errors import Code

_MISSING: Final = (Code.NOT_FOUND,)

ACCOUNT_OPERATIONS: Final = (
    Operation(
        "GET",
        "/v1/quotas",
        "List quotas",
        accounts.quotas,
        query=QuotaQuery,
        answer=Page,
        errors=_MISSING,
        action="compute:quota:list",
    ),
    Operation(
        "GET",
        "/v1/usage",
        "Tell what reservations were promised and got over a time",
        accounts.usage_lines,
        query=UsageQuery,
        answer=UsageView,
        errors=_MISSING,
        action="compute:usage:list",
    ),
    Operation(
        "GET",
        "/v1/usage/records",
        "List what allocations held over a time, for billing",
        accounts.usage_records,
        query=UsageQuery,
        answer=UsageRecords,
        errors=_MISSING,
        action="compute:usage:list",
    ),
    Operation(
        "PUT",
        "/v1/quotas",
        "Limit what a tenant holds in a pool at once",
        accounts.limited,
        body=QuotaRequest,
        answer=QuotaView,
        errors=_MISSING,
        audience="operator",
        action="compute:quota:limit",
    ),
    Operation(
        "DELETE",
        "/v1/quotas",
        "Lift a tenant's limit",
        accounts.lifted,
        query=QuotaRemoval,
        errors=_MISSING,
        audience="operator",
        action="compute:quota:lift",
    ),
    Operation(
        "GET",
        "/v1/doctor",
        "Look for rows that break what must always hold",
        accounts.examined,
        answer=Diagnosis,
        audience="operator",
        action="compute:doctor:read",
    ),
)
