"""Bodies of the API about join tokens. Instants are integers, milliseconds UTC."""

from typing import Annotated, Literal

from pydantic import Field

from muster_coordinator.service.bodies import WhenText
from muster_shared.codec import Count, Label, Message, Request, Text


class JoinTokenRequest(Request):
    """Which host may join, and where."""

    node_name: Annotated[Label, Field(description="The name that the host will join under")]
    pool_id: Annotated[Text | None, Field(description="Id or name; the pool named default when absent")] = None
    duration: Annotated[WhenText, Field(description="How long it lets the host in, at most 30d")] = "24h"


class JoinTokenView(Message):
    """A join token without its secret."""

    id: str
    node_name: str
    pool_id: str
    pool_name: str
    state: Literal["open", "used", "expired", "revoked"]
    created: Count
    expires: Count
    used: Count | None = None


class JoinTokenSecret(JoinTokenView):
    """A join token that was just made: what its host shows, told this once."""

    token: str
