"""Bodies of the HTTP API about tokens, policies and the audit log."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from muster_coordinator.service.bodies import Positive, WhenText
from muster_shared.codec import Count, Label, Message, Request, Text

RoleName = Literal["operator", "tenant", "auditor", "read-only", "metrics"]

_POLICY_MAX = 16_384  # characters; a policy that is longer is several


class TokenRequest(Request):
    """A credential for a person or a program."""

    name: Label
    roles: Annotated[list[RoleName], Field(min_length=1, max_length=5)]
    tenant_id: Annotated[Label | None, Field(description="Confines it to one tenant; the role tenant needs it")] = None
    duration: Annotated[WhenText, Field(description="How long it is good for, at most 3650d")] = "90d"


class TokenView(Message):
    """A token without its secret."""

    id: str
    name: str
    roles: list[str]
    tenant_id: str | None = None
    state: Literal["live", "expired", "revoked"]
    created: Count
    expires: Count
    revoked: Count | None = None
    last_used: Count | None = None
    created_by: str


class TokenSecret(TokenView):
    """A token that was just made: what its bearer shows, told this once."""

    token: str


class PolicyRequest(Request):
    """A policy in Cedar's language: one statement or several."""

    name: Label
    text: Annotated[str, Field(min_length=1, max_length=_POLICY_MAX)]

    @field_validator("text")
    @classmethod
    def _is_text(cls, text: str) -> str:
        if any(not (sign.isprintable() or sign in "\n\t") for sign in text):
            raise ValueError("control and bidirectional characters are not accepted")
        return text


class PolicyView(Message):
    """A policy."""

    name: str
    text: str
    shipped: bool
    version: Count | None = None  # of those that operators have added
    changed: Count | None = None


class PolicyQuestion(Request):
    """Somebody who does not exist asks for something: what would the policies say?"""

    action: Annotated[Text, Field(description="Such as compute:reservation:create")]
    roles: Annotated[list[RoleName], Field(max_length=5)] = []
    tenant_id: Annotated[Label | None, Field(description="Of whoever asks")] = None
    owner: Annotated[Label | None, Field(description="The tenant whose thing it is; the asker's own when absent")] = (
        None
    )
    pool: Annotated[Label | None, Field(description="By name")] = None
    gpus: Annotated[Count, Field(le=64, description="Whole GPUs of each node")] = 0
    gpu_equivalent_milli: Annotated[
        Count | None, Field(description="Of the whole gang; 1000 for each GPU when absent")
    ] = None
    gang: Annotated[Positive, Field(le=4096)] = 1
    start: Annotated[WhenText | Count, Field(description="RFC 3339, epoch ms, now or +2h")] = "now"
    duration: WhenText = "1h"
    binding: Literal["devices", "node"] = "devices"
    spot: bool = False
    text: Annotated[
        str | None, Field(max_length=_POLICY_MAX, description="A policy to try beside those that there are")
    ] = None


class PolicyAnswer(Message):
    """What the policies say."""

    allowed: bool
    policies: list[str]  # that decided: those that forbid, else those that permit; none where none permits
    errors: list[str]  # of policies that could not be judged: it is denied for that
    context: dict[str, int | str | bool]
    explanation: str


class AuditView(Message):
    """One row of the audit log."""

    seq: Count
    at: Count
    request_id: str
    actor: str
    source: str
    action: str
    object: str
    decision: Literal["allow", "deny"]
    policies: list[str]
    outcome: str
    reason: str | None = None
    before: dict[str, int]  # versions of what was changed, by its id
    after: dict[str, int]
    former_hash: str
    hash: str


class VerifiedView(Message):
    """What a walk over the audit log's chain has found."""

    sound: bool
    rows: Count  # that follow one another without a fault
    pending: Count  # committed, and not in the chain yet
    head: str  # hash of the last of them: whoever notes it elsewhere can tell later that nothing before it was changed
    broken_at: Count | None = None
    fault: str | None = None
