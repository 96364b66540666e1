"""The stable error codes of the HTTP API, and the status and exit code that belong to each."""

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """Programs branch on these words, so none ever changes its meaning."""

    INVALID_INPUT = "INVALID_INPUT"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    CONFLICT = "CONFLICT"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    IDEMPOTENCY_MISMATCH = "IDEMPOTENCY_MISMATCH"
    TOO_LARGE = "TOO_LARGE"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"

    @property
    def http_status(self) -> int:
        """The HTTP status that carries this code."""
        return _STATUS[self]


_STATUS = {
    Code.INVALID_INPUT: 400,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.CONFLICT: 409,
    Code.QUOTA_EXCEEDED: 403,
    Code.IDEMPOTENCY_MISMATCH: 422,  # draft-ietf-httpapi-idempotency-key-header-07, section 2.7
    Code.TOO_LARGE: 413,
    Code.UNSUPPORTED_MEDIA_TYPE: 415,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with a message: where, and what to write instead."""

    path: str  # dotted, as in `gang.size` or `devices.0.count`; empty for the whole message
    message: str


class Problem(Exception):  # noqa: N818 - the name of RFC 9457
    """A refusal with a stable code. It changed nothing; `detail` says what to do next."""

    def __init__(self, code: Code, detail: str, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = errors


def invalid(path: str, message: str) -> Problem:
    """Return the refusal of one field."""
    return Problem(Code.INVALID_INPUT, f"{path}: {message}" if path else message, (FieldError(path, message),))
