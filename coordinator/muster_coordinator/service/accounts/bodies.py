"""Bodies of the API about quotas. Instants are integers, milliseconds UTC."""

from typing import Annotated

from pydantic import Field

from muster_shared.codec import Count, Label, Message, Request, Text

Gpus = Annotated[float, Field(ge=0, le=1_000_000, description="GPUs, to the thousandth")]


class QuotaRequest(Request):
    """How much of a pool a tenant may hold at once."""

    tenant_id: Label
    pool_id: Annotated[Text | None, Field(description="Id or name; the pool named default when absent")] = None
    gpus: Annotated[Gpus, Field(description="GPUs at once, to the thousandth: 0 lets nobody new in")]
    reason: Annotated[Text | None, Field(description="Kept with the event")] = None


class QuotaQuery(Request):
    """Whose quotas, and of which pool."""

    tenant_id: Text | None = None
    pool_id: Annotated[Text | None, Field(description="Id or name; all when absent")] = None


class QuotaRemoval(Request):
    """Which limit is lifted."""

    tenant_id: Label
    pool_id: Annotated[Text | None, Field(description="Id or name; the pool named default when absent")] = None
    reason: Annotated[Text | None, Field(description="Kept with the event")] = None


class QuotaView(Message):
    """What a tenant may hold in a pool at once, and holds."""

    tenant_id: str
    pool_id: str
    pool_name: str
    gpus: float
    used_gpus: float  # charged now: placed, running, or waiting for a repair
    changed: Count
