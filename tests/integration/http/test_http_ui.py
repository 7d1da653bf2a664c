"""/ui: the module for JavaScript, with its caching, and no other file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.integration.http.service import Service

UI = Path(__file__).parents[3] / "src" / "bide" / "ui"
MODULE = (UI / "bide.js").read_bytes()


async def test_the_module_is_served_with_its_type(service: Service) -> None:
    reply = await service.call("GET", "/ui/bide.js")
    assert reply.status == 200 and reply.body == MODULE
    assert reply.headers["content-type"] == "text/javascript; charset=utf-8"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-cache"
    types = await service.call("GET", "/ui/bide.d.ts")
    assert types.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_browser_that_has_the_file_gets_304(service: Service) -> None:
    first = await service.call("GET", "/ui/bide.js")
    again = await service.call("GET", "/ui/bide.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    older = await service.call("GET", "/ui/bide.js", headers={"If-None-Match": '"older"'})
    assert older.status == 200


async def test_text_is_compressed_on_request(service: Service) -> None:
    reply = await service.call("GET", "/ui/bide.js", headers={"Accept-Encoding": "br, gzip;q=0.8"})
    assert reply.headers["content-encoding"] == "gzip" and gzip.decompress(reply.body) == MODULE
    assert int(reply.headers["content-length"]) == len(reply.body) < len(MODULE) / 2
    assert reply.headers["vary"] == "Accept-Encoding"
    plain = await service.call("GET", "/ui/bide.js", headers={"Accept-Encoding": "gzip;q=0, br"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["etag"] != reply.headers["etag"]  # they are different bytes


@pytest.mark.parametrize(
    "path",
    [
        "/ui/package.json",
        "/ui/..",
        "/ui/../__init__.py",
        "/ui/%2e%2e%2f__init__.py",
        "/ui/..%2f..%2fbide%2f__init__.py",
        "/ui/bide.js%00",
        "/ui/BIDE.JS",
        "/ui/./bide.js",
        "/ui/",
    ],
)
async def test_nothing_else_is_served(service: Service, path: str) -> None:
    reply = await service.call("GET", path)
    assert reply.status == 404
