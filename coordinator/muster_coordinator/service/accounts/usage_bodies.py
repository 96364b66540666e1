"""Bodies of the API about usage. Instants are integers, milliseconds UTC; amounts are exact in milli-GPU ms."""

from typing import Annotated, Literal

from pydantic import Field

from muster_coordinator.service.bodies import WhenText
from muster_shared.codec import Count, Message, Request, Text

Kind = Literal["regular", "spot", "unallocated"]


class UsageQuery(Request):
    """Whose usage, and of which time."""

    tenant_id: Text | None = None
    pool_id: Annotated[Text | None, Field(description="Id or name; all when absent")] = None
    start: Annotated[
        WhenText | None,
        Field(alias="from", description="RFC 3339, epoch ms or -7d; 30 days earlier when absent"),
    ] = None
    end: Annotated[
        WhenText | None, Field(alias="to", description="RFC 3339, epoch ms or now, and no later; now when absent")
    ] = None


class UsageRecord(Message):
    """What one node gave one reservation, as far as it lies in the time asked for."""

    allocation_id: str
    reservation_id: str
    name: str | None = None
    tenant_id: str
    pool_id: str
    budget: str | None = None
    kind: Kind
    node_id: str
    milli: Annotated[Count, Field(description="Milli-GPU that it held")]
    start: Count
    end: Count
    milli_ms: Annotated[Count, Field(description="milli times ms; adjacent times add up exactly")]
    final: Annotated[bool, Field(description="False while its node still holds it")]


class UsageLine(Message):
    """One reservation: what it was promised, what it got, and how long it let its owner wait."""

    reservation_id: str
    name: str | None = None
    tenant_id: str
    pool_id: str
    budget: str | None = None
    kind: Kind
    promised_milli_ms: Count
    delivered_milli_ms: Count
    promised_gpu_hours: float
    delivered_gpu_hours: float
    late_ms: Annotated[Count, Field(description="From its booked start until every member was bound")]
    final: Annotated[bool, Field(description="False while it may still use more")]


class UsageTotal(Message):
    """All reservations of one tenant, budget and kind."""

    tenant_id: str
    budget: str | None = None
    kind: Kind
    reservations: Count
    promised_milli_ms: Count
    delivered_milli_ms: Count
    promised_gpu_hours: float
    delivered_gpu_hours: float
    late_ms: Count


class UsageView(Message):
    """What was promised and delivered over a time."""

    start: Annotated[Count, Field(alias="from")]
    end: Annotated[Count, Field(alias="to")]
    items: list[UsageLine]
    totals: list[UsageTotal]


class UsageRecords(Message):
    """What a billing system takes: one record an allocation, cut at the edges of the time asked for."""

    start: Annotated[Count, Field(alias="from")]
    end: Annotated[Count, Field(alias="to")]
    items: list[UsageRecord]
