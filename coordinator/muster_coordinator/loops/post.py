"""Sends one signed event to one receiver, and reads no more of its answer than that there is one.

A name is resolved once, each address is looked at, and the connection goes to one of these. Redirects are not
followed, proxies of the environment are not used. Source: facts on reliability, X07 and F28.
"""

import asyncio
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import Final

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    ThreadedResolver,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from muster_coordinator.core.webhook.signature import headers
from muster_coordinator.core.webhook.targets import Allowed, address_fault, host_fault, url_fault
from muster_coordinator.service.bodies import EventView
from muster_shared.codec import encode

TIMEOUT_S: Final = 5.0  # for all of it, the name's resolution included
READ_MAX: Final = 64 * 1024  # bytes of an answer: enough for every honest one, and none of them is kept
IN_FLIGHT: Final = 4  # connections to one receiver: it must not be flooded by a storm


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one attempt."""

    status: int | None  # of the answer; None where there was none
    error: str | None  # None where the receiver took it

    @property
    def is_gone(self) -> bool:
        """Does the receiver ask never to be sent anything again?"""
        return self.status == HTTPStatus.GONE


class TargetRefusedError(OSError):
    """Nothing is sent there."""


class Post:
    """The way out."""

    def __init__(self, inside: Allowed, timeout_s: float = TIMEOUT_S) -> None:
        """Send to the public internet, and to what is allowed beside it."""
        self.inside: Final = inside
        self._timeout_s: Final = timeout_s
        self._sessions: dict[bool, ClientSession] = {}
        self._agent: Final = f"muster/{version('gpu-muster')}"

    async def send(self, url: str, secrets: Iterable[str], event: EventView, now_ms: int) -> Verdict:
        """Make one attempt; never raises for what a receiver or a network does.

        Args:
            url: Of the receiver.
            secrets: That sign it.
            event: The body, as the API shows it.
            now_ms: The time of this attempt.
        """
        body = encode(event)
        sent = headers(secrets, event.id, now_ms // 1_000, body)
        sent |= {"Content-Type": "application/json", "User-Agent": self._agent}
        try:
            return await self._attempt(URL(url), sent, body)
        except TimeoutError:
            return Verdict(None, f"no answer within {self._timeout_s:g} s")
        except ClientConnectorCertificateError as error:
            return Verdict(None, f"its certificate is not accepted: {error.certificate_error}")
        except ClientConnectorError as error:
            return Verdict(None, str(error.os_error))
        except (ClientError, OSError, ValueError) as error:
            return Verdict(None, f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        """Close every connection."""
        for session in self._sessions.values():
            await session.close()

    async def _attempt(self, url: URL, sent: dict[str, str], body: bytes) -> Verdict:
        # Names are looked at here, their addresses by the resolver; a host that is an address has no other moment.
        is_tls = url.scheme == "https"
        fault = url_fault(str(url), self.inside) or host_fault(url.host or "", is_tls=is_tls, inside=self.inside)
        if fault:
            raise TargetRefusedError(fault)
        session = self._session(is_tls=is_tls)
        async with session.post(url, data=body, headers=sent, allow_redirects=False) as answer:
            await _drained(answer)
            if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
                return Verdict(answer.status, None)
            is_elsewhere = HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST
            hint = ", and redirects are not followed: give the receiver's own URL" if is_elsewhere else ""
            return Verdict(answer.status, f"it answered {answer.status}{hint}")

    def _session(self, *, is_tls: bool) -> ClientSession:
        if is_tls not in self._sessions:
            self._sessions[is_tls] = ClientSession(
                connector=TCPConnector(
                    resolver=_Guard(self.inside, is_tls=is_tls), use_dns_cache=False, limit=0, limit_per_host=IN_FLIGHT
                ),
                cookie_jar=DummyCookieJar(),
                timeout=ClientTimeout(total=self._timeout_s),
                auto_decompress=False,
                trust_env=False,
            )
        return self._sessions[is_tls]


async def _drained(answer: ClientResponse) -> None:
    """Read a short answer to its end, so that its connection can be used again; cut the connection of a long one."""
    left = READ_MAX
    async for chunk in answer.content.iter_any():
        left -= len(chunk)
        if left < 0:
            answer.close()
            return


class _Guard(AbstractResolver):
    """Resolves a name, and refuses it where any address that it has is not to be reached."""

    def __init__(self, inside: Allowed, *, is_tls: bool) -> None:
        self._inside = inside
        self._is_tls = is_tls
        self._resolver = ThreadedResolver(loop=asyncio.get_running_loop())

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for one in found:
            if fault := address_fault(one["host"], host, is_tls=self._is_tls, inside=self._inside):
                raise TargetRefusedError(fault)
        return found

    async def close(self) -> None:
        await self._resolver.close()
