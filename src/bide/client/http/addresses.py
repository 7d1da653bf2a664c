"""Addresses: what is secret in them, whose they are, and the proxy on the way there."""

from __future__ import annotations

import base64
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_for(url: str) -> tuple[str | None, str | None]:
    """The proxy of HTTPS_PROXY and its like with its credentials, unless NO_PROXY or a loopback address excludes it.

    aiohttp's trust_env would do, but it looks for them, and into ~/.netrc, in a thread before each single request.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = getproxies().get(parts.scheme)
    if not proxy or loopback(host) or proxy_bypass(host):
        return None, None
    bare, proof = split_credentials(proxy if "://" in proxy else f"http://{proxy}")
    return bare, proof.get("Authorization")


def split_credentials(url: str) -> tuple[str, dict[str, str]]:
    """An address without the user and password in it, and the header that says the same."""
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
