"""How a receiver knows that an event comes from here: a keyed hash over its id, the time, and its body.

Source: the Standard Webhooks specification, symmetric signatures (`v1`).
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Final

_SHOWN_AS: Final = "whsec_{}"


def new_secret(random: str) -> str:
    """Make a secret, as it is stored, of a text that nobody can guess."""
    return b64encode(random.encode()).decode()


def shown_secret(secret: str) -> str:
    """Write a stored secret as receivers' libraries take it."""
    return _SHOWN_AS.format(secret)


def headers(secrets: Iterable[str], event_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Return the headers that go with a body.

    Args:
        secrets: As they are stored; several while one is being changed, and a receiver takes whichever it knows.
        event_id: The same at each attempt, so that a receiver can tell what it has seen.
        timestamp_s: Seconds UTC of this attempt; a receiver refuses what is older than some minutes.
        body: As it is sent, byte for byte.
    """
    signed = f"{event_id}.{timestamp_s}.".encode() + body
    signatures = (hmac.new(b64decode(secret), signed, hashlib.sha256).digest() for secret in secrets)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(f"v1,{b64encode(signature).decode()}" for signature in signatures),
    }
