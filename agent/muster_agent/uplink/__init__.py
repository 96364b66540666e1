"""The way to the coordinator: three calls, and what can become of each."""

from typing import Protocol

from muster_shared.wire import Credential, DesiredState, Registration, Report, ReportAnswer


class UplinkError(Exception):
    """A call that did not work. The text is for the log."""

    def __init__(self, detail: str, retry_after_ms: int = 0) -> None:
        super().__init__(detail)
        self.retry_after_ms = retry_after_ms  # the coordinator's own wish, 0 where it has none


class UnreachableError(UplinkError):
    """No answer, or none that makes sense: the network, a proxy, or a coordinator in trouble."""


class IdentityUnknownError(UplinkError):
    """The coordinator does not know this node or its token: it must join again."""


class RefusedError(UplinkError):
    """The coordinator understood and said no. A person has to change something."""


class Transport(Protocol):
    """One attempt at each call. Raises an `UplinkError` of the kind that fits, and nothing else."""

    async def register(self, registration: Registration, /) -> Credential:
        """Join, or join again."""
        ...

    async def report(self, credential: Credential, report: Report, /) -> ReportAnswer:
        """Tell the whole truth of the node."""
        ...

    async def desired(self, credential: Credential, rev: int, wait_ms: int, /) -> DesiredState | None:
        """Ask for a desired state above `rev`, waiting up to `wait_ms` for one; None if there was none."""
        ...
