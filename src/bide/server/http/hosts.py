"""The host that a request names: in `Host`, and in `Origin` when a browser sends it for a page.

A page can have its own name resolve to this service's address after it was loaded (DNS rebinding). Its requests then are
of the page's own origin for the browser, but they name the page's host. So the service answers only to hosts that it knows.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache

from bide.core.errors import MalformedRequest, SetupError, UntrustedHost
from bide.server.config import is_loopback
from bide.server.http.exchange import Request

LOOPBACK = frozenset(("localhost", "127.0.0.1", "[::1]"))
PROBES = ("/healthz", "/readyz")  # probes name the address of a machine, or no host at all
LONGEST = 300
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5})?)?")
_ORIGIN = re.compile(r"(https?)://([^/?#@]+)", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}


@lru_cache(maxsize=256)
def split_host(text: str) -> tuple[str, int | None] | None:
    """The name in its one form, and the port; None when `text` is not one host."""
    found = _HOST.fullmatch(text) if len(text) <= LONGEST else None
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
    """The names of --trusted-hosts in their one form."""
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
    """The hosts that a service which listens on `address` answers to."""

    def __init__(self, address: str, trusted: frozenset[str]) -> None:
        own = split_host(f"[{address}]" if ":" in address else address)
        names = trusted
        if is_loopback(address):
            names |= LOOPBACK | ({own[0]} if own is not None else set())
        self._names = names or None  # None: any

    def check(self, request: Request) -> None:
        """Raises when the request names no host, several, or one that is not trusted. A probe is answered all the same,
        but not told any details.
        """
        text = request.header(b"host")
        host = None if text is None else split_host(text)
        if host is not None and (self._names is None or host[0] in self._names):
            return
        if request.path in PROBES:
            request.details = False
        elif text is None:
            raise MalformedRequest("the Host header is missing")
        elif host is None:
            raise MalformedRequest(
                f"The Host header {text[:200]!r} is invalid or repeated. Send one host, for example "
                "`Host: 127.0.0.1`."
            )
        else:
            raise UntrustedHost(
                f"the service does not answer to the host {host[0]!r}: start it with --trusted-hosts {host[0]}, "
                "if that is its name"
            )


def is_same_host(origin: str, host: str | None) -> bool:
    """Whether a page of this origin came from the host that it sends a request to. The scheme of the request is not
    compared: behind a proxy it is not known.
    """
    page, own = split_origin(origin), split_host(host or "")
    if page is None or own is None or page[1] != own[0]:
        return False
    scheme, _, port = page
    default = _DEFAULT_PORTS[scheme]
    return (port or default) == own[1] or (own[1] is None and port in (None, default))


def split_origin(origin: str) -> tuple[str, str, int | None] | None:
    """Scheme, host and port; None for `null`, and for what is not the origin of a page."""
    found = _ORIGIN.fullmatch(origin)
    host = None if found is None else split_host(found[2])
    return None if found is None or host is None else (found[1].lower(), *host)
