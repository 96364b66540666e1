"""Bodies of the API about the doctor."""

from typing import Annotated

from pydantic import Field

from muster_shared.codec import Count, Message


class FindingView(Message):
    """One row that breaks one rule."""

    rule: Annotated[str, Field(description="Short name of the rule")]
    says: Annotated[str, Field(description="The rule, in words")]
    subject: Annotated[str, Field(description="Id of the row that breaks it")]
    message: str


class Diagnosis(Message):
    """What the doctor has found. Nothing is what should be found."""

    items: Annotated[list[FindingView], Field(description="At most 1,000")]
    count: Annotated[Count, Field(description="Of all findings")]
    reservations: Annotated[Count, Field(description="Looked at that have not ended")]
    nodes: Count
