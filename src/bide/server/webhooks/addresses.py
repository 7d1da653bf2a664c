"""Which addresses a webhook may reach: public ones, unless the settings allow private ones.

1. The resolver checks every address that it returns, and the connection is made to that address. So a name that resolves
   to another address later is checked again.
2. The socket is created only for an address that passed the check. This covers addresses in the URL, too, and redirects.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

MAX_URL = 2048
LOOKUP_TIMEOUT = 2.0  # seconds that the check of a new URL waits for the name server
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Python 3.11 counts these as public: the metadata addresses of Oracle Cloud (192.0.0.192) and Azure (168.63.129.16).
_RESERVED_V4 = [ipaddress.ip_network(network) for network in ("192.0.0.0/24", "168.63.129.16/32")]
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")
Lookup = Callable[[str, int, socket.AddressFamily], Awaitable[Sequence[tuple[Any, ...]]]]


class AddressRejected(OSError):
    """A webhook may not reach this address."""


def is_public(address: str) -> bool:
    """Whether this is the address of a host on the internet. An IPv6 address that contains an IPv4 address is judged by
    the IPv4 address.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        return ip in _GLOBAL_V6 and ip.is_global
    reserved = ip.is_multicast or ip.is_reserved or any(ip in network for network in _RESERVED_V4)
    return ip.is_global and not reserved


def check_url(url: str) -> tuple[str, int]:
    """Host and port of a URL. Raises ValueError if a webhook cannot have this URL."""
    if len(url) > MAX_URL or not url.isprintable() or any(c.isspace() for c in url):
        raise ValueError(f"a URL has at most {MAX_URL} characters, without spaces")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("use an absolute URL with http or https")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a user name or a password is not supported")
    if parts.fragment:
        raise ValueError("a URL with a fragment is not supported")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port is not a number from 1 to 65535") from None
    if port == 0:
        raise ValueError("the port is not a number from 1 to 65535")
    return parts.hostname, port or (443 if parts.scheme == "https" else 80)


def literal(host: str) -> str | None:
    """The address, if the host is one."""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return None


async def _look_up(host: str, port: int, family: socket.AddressFamily) -> Sequence[tuple[Any, ...]]:
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)


class Addresses:
    """Resolves names, and rejects addresses that webhooks may not reach."""

    def __init__(self, *, allow_private: bool, look_up: Lookup = _look_up) -> None:
        self.allow_private = allow_private
        self._look_up = look_up

    def check(self, address: str) -> None:
        """Raise AddressRejected if a webhook may not reach this address."""
        if not self.allow_private and not is_public(address):
            raise AddressRejected(
                f"{address} is not a public address; --webhooks-allow-private allows private ones"
            )

    async def check_url(self, url: str) -> None:
        """Check a new URL. Raises ValueError. A name that cannot be resolved now is accepted, because each delivery resolves
        and checks it.
        """
        host, port = check_url(url)
        if self.allow_private:
            return
        address = literal(host)
        try:
            if address is not None:
                self.check(address)
                return
            async with asyncio.timeout(LOOKUP_TIMEOUT):
                await self.resolve(host, port)
        except AddressRejected as error:
            raise ValueError(str(error)) from None
        except (OSError, TimeoutError):
            return

    async def resolve(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host that a webhook may reach. If it has others, too, reject all."""
        found = await self._look_up(host, port, family)
        results: list[ResolveResult] = []
        for of, _, protocol, _, place in found:
            self.check(place[0])
            results.append(
                {
                    "hostname": host,
                    "host": place[0],
                    "port": port,
                    "family": of,
                    "proto": protocol,
                    "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                }
            )
        if not results:
            raise OSError(f"{host} has no address")
        return results

    def make_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """A socket for the connection to a resolved address."""
        family, kind, protocol, _, place = info
        self.check(place[0])
        return socket.socket(family, kind, protocol)
