"""Where webhooks may go: to the public internet over TLS, and to what an operator has allowed by name or network.

A coordinator reaches places that whoever names a URL may not: metadata services, databases, the hosts' own ports. What
counts is the address that a connection is made to, so each one is looked at, after the name was resolved.

Source: facts on reliability, X07; RFC 6890 for addresses of special purposes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, urlsplit

URL_MAX: Final = 2_048
"""Characters; longer URLs are cut or refused on the way."""

_HOST: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?\.?")
_NUMERIC: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*\.?")
_NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))  # the last 32 bits are an IPv4 address
_IPV4_BITS: Final = (1 << 32) - 1  # an IPv4 address has 32

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Allowed:
    """What is inside and yet allowed, also without TLS."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    names: frozenset[str] = frozenset()  # host names in lower case


def allowed(entries: Iterable[str]) -> Allowed:
    """Read what an operator allows: addresses, networks such as 10.0.0.0/8, or host names.

    Raises:
        ValueError: An entry is none of these; the message names it.
    """
    networks: list[IPv4Network | IPv6Network] = []
    names: set[str] = set()
    for entry in entries:
        try:
            networks.append(ip_network(entry))
        except ValueError:
            if "/" in entry or _NUMERIC.fullmatch(entry) or not _HOST.fullmatch(entry.lower()):
                raise ValueError(f"{entry!r} is no address, no network such as 10.0.0.0/8, and no host name") from None
            names.add(entry.lower().rstrip("."))
    return Allowed(tuple(networks), frozenset(names))


def url_fault(url: str, inside: Allowed) -> str | None:
    """Return why nothing can be sent to a URL, as far as that can be told without resolving its name; or None."""
    if len(url) > URL_MAX or not re.fullmatch(r"[\x21-\x7e]+", url) or "\\" in url:
        return f"a URL has at most {URL_MAX} visible ASCII characters and no backslash"
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        return f"not a URL: {error}"
    return _form_fault(parts) or host_fault(host, is_tls=parts.scheme == "https", inside=inside)


def _form_fault(parts: SplitResult) -> str | None:
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        return "use https://HOST/PATH"
    if parts.username is not None or parts.password is not None:
        return "a URL is shown to whoever lists receivers: leave user and password out, the signature tells who sends"
    if parts.fragment:
        return "what stands after # is never sent: leave it out"
    return None


def host_fault(host: str, *, is_tls: bool, inside: Allowed) -> str | None:
    """Return why nothing can be sent to a host by its name alone, or None: its addresses are looked at when it is."""
    if ":" in host or _NUMERIC.fullmatch(host):
        return address_fault(host, host, is_tls=is_tls, inside=inside)
    if not _HOST.fullmatch(host):
        return f"{host!r} is no host name"
    if not is_tls and host.rstrip(".") not in inside.names and not inside.networks:
        return _PLAIN
    return None


_PLAIN: Final = "use https: plain http goes only to what webhook_allow of the coordinator's configuration names"


def address_fault(address: str, host: str, *, is_tls: bool, inside: Allowed) -> str | None:
    """Return why no connection may be made to an address that a host has, or None.

    Args:
        address: As the resolver gave it, or the host itself where it is an address.
        host: Its name in the URL.
        is_tls: Whether what is sent there is encrypted.
        inside: What is allowed all the same.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return f"{address!r} is no address in its usual form"
    if host.lower().rstrip(".") in inside.names or any(_meant(found) in network for network in inside.networks):
        return None
    if not is_tls:
        return _PLAIN
    if _is_public(found) and _is_public(_meant(found)):
        return None
    return (
        f"{host} is at {address}, which is not on the public internet: name it, or its network, in webhook_allow "
        "of the coordinator's configuration"
    )


def _meant(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address carries in it, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if any(address in network for network in _NAT64):
        return IPv4Address(int(address) & _IPV4_BITS)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None) or address


def _is_public(address: Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not (isinstance(address, IPv6Address) and (address.is_site_local or int(address) <= _IPV4_BITS))
    )
