"""Bodies of the API about receivers of webhooks."""

from typing import Annotated, Literal

from pydantic import Field

from muster_shared.codec import Count, Label, Message, Request, Text

UrlText = Annotated[str, Field(min_length=1, max_length=2_048)]


class WebhookRequest(Request):
    """A receiver to be told of events."""

    name: Label
    url: Annotated[UrlText, Field(description="https://HOST/PATH; without TLS only where the configuration allows it")]
    types: Annotated[
        list[Text],
        Field(max_length=64, description="Event types, or prefixes that end in a dot, such as node. ; all when empty"),
    ] = []


class WebhookView(Message):
    """A receiver, and how it stands with it. The secret is shown once, to whoever made or changed it."""

    id: str
    name: str
    url: str
    types: list[str]
    enabled: bool
    rotating: bool  # what is sent is signed with the former secret, too
    waiting: Count  # events on their way
    dead: Count  # events given up on
    oldest_waiting: Count | None = None  # when the oldest event that waits happened, ms UTC
    failing_since: Count | None = None  # ms UTC; absent while it takes what it is sent
    created: Count
    version: Count


class WebhookSecret(WebhookView):
    """A receiver with its secret, which is shown this once."""

    secret: str  # as libraries for Standard Webhooks take it


class WebhookTest(Message):
    """What a receiver made of a ping."""

    delivered: bool
    status: Count | None = None  # of its answer; absent where there was none
    error: str | None = None
    event_id: str


class DeliveryView(Message):
    """One event on its way to one receiver."""

    seq: Count  # of the event
    event_id: str
    type: str
    subject: str
    state: Literal["waiting", "delivered", "dead"]
    attempts: Count
    next: Count | None = None  # when it is tried again, ms UTC
    done: Count | None = None  # when it was delivered or given up, ms UTC
    error: str | None = None  # of the last attempt


class ReplayRequest(Request):
    """What is sent again: the dead letters, or with `after` every event of the log from there on."""

    after: Annotated[Count | None, Field(description="Every wanted event after this number, delivered or not")] = None
    until: Annotated[Count | None, Field(description="With after: up to this number")] = None


class Replayed(Message):
    """How many events were queued."""

    queued: Count
