"""The public address of a service behind a proxy: --root-path, and X-Forwarded-Prefix, -Proto and -Host. The address of the
caller: X-Forwarded-For.

Only a trusted proxy may send these headers, because any other caller could place links to its own host in responses. A
proxy may append its value to a value of the caller, so the last value counts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache

from bide.core.errors import MalformedRequest, SetupError
from bide.server.http.hosts import split_host
from bide.server.http.request import HttpRequest

# Each segment has a character, because `//host/path` is a URL of another host.
_PREFIX = re.compile(r"((?:/[\w.~!$&'()*+,;=:@%-]+)*)/?", re.ASCII)
MAX_PREFIX = 300
SCHEMES = ("http", "https")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def read_root_path(setting: str) -> str:
    """Return --root-path without a slash at its end."""
    prefix = _prefix(setting)
    if prefix is None:
        raise SetupError(
            f"--root-path {setting!r} is not the path of a URL: write it as callers see it, as in /bide"
        )
    return prefix


def read_proxies(settings: Iterable[str]) -> TrustedProxies | None:
    """Return the proxies of --trusted-proxies; None if there are none."""
    networks = []
    for setting in settings:
        try:
            networks.append(ipaddress.ip_network(setting, strict=False))
        except ValueError:
            raise SetupError(
                f"--trusted-proxies {setting!r} is not an address or a network: write it as 10.0.0.7 or 10.0.0.0/8"
            ) from None
    return TrustedProxies(networks) if networks else None


class TrustedProxies:
    """The proxies whose headers name the public address of the service."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = tuple(networks)
        self.trusts = lru_cache(maxsize=1024)(self._trusts)

    def _trusts(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:  # a UNIX socket
            return False
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return any((mapped or found) in network for network in self._networks)

    def read(self, request: HttpRequest) -> None:
        """Set the public address of the request, if a trusted proxy sent it. Raise MalformedRequest if a header is
        invalid.
        """
        client = request.scope.get("client")
        if client is None or not self.trusts(client[0]):
            return
        if (text := _last(request, b"x-forwarded-prefix")) is not None:
            prefix = _prefix(text)
            if prefix is None:
                raise _invalid("X-Forwarded-Prefix", text, "a path such as /bide")
            request.set_prefix(prefix)
        if (text := _last(request, b"x-forwarded-proto")) is not None:
            if text.lower() not in SCHEMES:
                raise _invalid("X-Forwarded-Proto", text, "http or https")
            request.forwarded_scheme = text.lower()
        if (text := _last(request, b"x-forwarded-host")) is not None:
            if split_host(text) is None:
                raise _invalid("X-Forwarded-Host", text, "a host such as jobs.example.org")
            request.forwarded_host = text

    def client_address(self, request: HttpRequest) -> str:
        """The address of the caller: the last one in X-Forwarded-For that is no trusted proxy, because each proxy appends
        the address that it sees. Empty if it is unknown.
        """
        client = request.scope.get("client")
        address: str = client[0] if client else ""
        if self.trusts(address):
            for text in reversed((request.header(b"x-forwarded-for") or "").split(",")):
                try:
                    address = str(ipaddress.ip_address(text.strip()[:64]))
                except ValueError:
                    break
                if not self.trusts(address):
                    break
        return address


def _last(request: HttpRequest, name: bytes) -> str | None:
    text = request.header(name)
    return None if text is None else text.rpartition(",")[2].strip()


def _prefix(text: str) -> str | None:
    found = _PREFIX.fullmatch(text) if len(text) <= MAX_PREFIX else None
    return None if found is None else found[1]


def _invalid(name: str, text: str, expected: str) -> MalformedRequest:
    return MalformedRequest(f"{name} is {text[:200]!r}; the proxy must send {expected}")
