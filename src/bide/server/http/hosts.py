"""Checks the host in `Host`, and in `Origin` if a browser sends it.

The host name of a page can resolve to this service's address after the page was loaded (DNS rebinding). For the browser
its requests are same-origin then, but they still name the host of the page. So the service accepts only known hosts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache

from bide.core.errors import MalformedRequest, SetupError, UntrustedHost
from bide.server.config import is_loopback
from bide.server.http.request import HttpRequest

LOOPBACK = frozenset(("localhost", "127.0.0.1", "[::1]"))
PROBES = ("/healthz", "/readyz")  # probes send the address of the machine, or no Host header
MAX_LENGTH = 300
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5})?)?")
_ORIGIN = re.compile(r"(https?)://([^/?#@]+)", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}


@lru_cache(maxsize=256)
def split_host(text: str) -> tuple[str, int | None] | None:
    """Return the normalized name and the port; None if `text` is not a host."""
    found = _HOST.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        return None
    name, port = found[1].lower(), found[2]
    if name.startswith("["):
        try:
            name = f"[{ipaddress.IPv6Address(name[1:-1]).compressed}]"
        except ValueError:
            return None
    else:
        name = name.removesuffix(".")
    return (name, int(port) if port else None) if name else None


def read_names(settings: Iterable[str]) -> frozenset[str]:
    """Return the normalized names of --trusted-hosts."""
    names = set()
    for setting in settings:
        host = split_host(f"[{setting}]" if setting.count(":") > 1 and "[" not in setting else setting)
        if host is None or host[1] is not None:
            raise SetupError(
                f"--trusted-hosts {setting!r} is not a host name or an address: write it without scheme, port and "
                "wildcards, as in jobs.example.org"
            )
        names.add(host[0])
    return frozenset(names)


class Hosts:
    """The hosts of a service that listens on `address`. It accepts requests for these hosts only."""

    def __init__(self, address: str, trusted: frozenset[str]) -> None:
        own = split_host(f"[{address}]" if ":" in address else address)
        names = trusted
        if is_loopback(address):
            names |= LOOPBACK | ({own[0]} if own is not None else set())
        self._names = names or None  # None: any

    def check(self, request: HttpRequest) -> None:
        """Raise a Problem if the request has no host, several, or an untrusted one. A probe gets a response without details
        instead.

        X-Forwarded-Host does not replace Host here: a page with a rebound name can send both.
        """
        self._check(request, request.header(b"host"), "Host")
        if request.forwarded_host is not None:
            self._check(request, request.forwarded_host, "X-Forwarded-Host")

    def _check(self, request: HttpRequest, text: str | None, name: str) -> None:
        host = None if text is None else split_host(text)
        if host is not None and (self._names is None or host[0] in self._names):
            return
        if request.path in PROBES:
            request.details = False
        elif text is None:
            raise MalformedRequest("the Host header is missing")
        elif host is None:
            raise MalformedRequest(
                f"The {name} header {text[:200]!r} is invalid or repeated. Send one host, for example "
                f"`{name}: 127.0.0.1`."
            )
        else:
            raise UntrustedHost(
                f"host {host[0]!r} in {name} is not trusted: if it is a name of this service, start it with "
                f"--trusted-hosts {host[0]}"
            )


def is_same_host(origin: str, host: str | None) -> bool:
    """Whether the origin of a page has the host and port of the request. The scheme is not compared, because it is unknown
    behind a proxy.
    """
    page, own = split_origin(origin), split_host(host or "")
    if page is None or own is None or page[1] != own[0]:
        return False
    scheme, _, port = page
    default = _DEFAULT_PORTS[scheme]
    return (port or default) == own[1] or (own[1] is None and port in (None, default))


def split_origin(origin: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host and port; None for `null` and for values that are not an origin."""
    found = _ORIGIN.fullmatch(origin)
    host = None if found is None else split_host(found[2])
    return None if found is None or host is None else (found[1].lower(), *host)
