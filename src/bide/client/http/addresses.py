"""Addresses of services: their credentials, and the proxy for them."""

from __future__ import annotations

import base64
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from bide.client.apis.values import without_credentials
from bide.core.errors import SetupError


def proxy_for(url: str) -> tuple[str | None, str | None]:
    """The proxy of HTTP_PROXY or HTTPS_PROXY and its credentials, unless NO_PROXY or a loopback address excludes it.

    aiohttp's trust_env reads the variables and ~/.netrc in a thread before each request, which is slow.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = getproxies().get(parts.scheme)
    if not proxy or loopback(host) or proxy_bypass(host):
        return None, None
    bare, proof = split_credentials(proxy if "://" in proxy else f"http://{proxy}")
    return bare, proof.get("Authorization")


def split_credentials(url: str) -> tuple[str, dict[str, str]]:
    """An address without its user and password, and the header that replaces them."""
    at = urlsplit(url)
    bare = at._replace(netloc=at.netloc.rpartition("@")[2]).geturl()
    if at.username is None:
        return bare, {}
    pair = f"{unquote(at.username)}:{unquote(at.password or '')}"
    return bare, {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SetupError(
            f"{without_credentials(url)!r} is not the address of a service: write http://HOST:PORT"
        )
