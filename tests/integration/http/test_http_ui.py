"""/ui: the module for JavaScript, with its caching, and no other file. And the page of the dashboard."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from bide.server.config import Config, HttpConfig
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


# --- the dashboard

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
# What the first page loads.
FIRST = ("bide.js", "dom.js", "format.js", "live.js", "app.js", "overview.js", "queues.js", "plot.js")
FIRST_FILES = (*FIRST, "session.js", "theme.js", "dashboard.css", "icon.svg")


async def test_a_browser_gets_the_dashboard_and_programs_get_links(service: Service) -> None:
    page = await service.call("GET", "/", headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert b'data-mode="on"' in page.body and b'src="/ui/app.js"' in page.body and b"$" not in page.body
    mounted = await service.call("GET", "/", headers=BROWSER, mount="/api")
    assert b'src="/api/ui/app.js"' in mounted.body
    for headers in ({}, {"Accept": "application/json"}, {"Accept": "*/*"}):
        links = await service.call("GET", "/", headers=headers)
        assert links.json()["name"] == "bide" and links.headers["vary"] == "Accept"


async def test_the_dashboard_may_load_only_its_own_files(service: Service) -> None:
    page = await service.call("GET", "/", headers=BROWSER)
    policy = page.headers["content-security-policy"]
    assert "default-src 'self'" in policy and "unsafe" not in policy and "http" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    text = page.body.decode()
    assert "<style" not in text and "style=" not in text and " on" not in text.replace('="on"', "")
    for found in re.findall(r'(?:src|href)="([^"#]+)"', text):
        if found.startswith("/ui/"):
            assert (await service.call("GET", found)).status == 200, found


async def test_the_dashboard_can_be_off_or_without_actions(tmp_path: Path) -> None:
    async with Service(tmp_path, config=Config(http=HttpConfig(ui="off"))).opened() as service:
        assert (await service.call("GET", "/", headers=BROWSER)).json()["name"] == "bide"
    async with Service(tmp_path, config=Config(http=HttpConfig(ui="read-only"))).opened() as service:
        page = await service.call("GET", "/", headers=BROWSER)
        assert b'data-mode="read-only"' in page.body


def test_no_module_inserts_html() -> None:
    for path in UI.glob("*.js"):
        source = path.read_text()
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert forbidden not in source, path.name
        for address in re.findall(r"https?://([a-z][\w.]*)", source):
            assert address in ("www.w3.org", "example.org") or path.name == "bide.js", (
                path.name,
                address,
            )


def test_the_files_are_small() -> None:
    sizes = {
        path.name: len(gzip.compress(path.read_bytes(), mtime=0))
        for path in UI.iterdir()
        if path.suffix in (".js", ".css", ".html", ".svg")
    }
    first = sum(sizes[name] for name in FIRST_FILES) + sizes["index.html"]
    assert first <= 60_000 and sum(sizes.values()) <= 120_000, sizes


def test_texts_have_enough_contrast_in_both_themes() -> None:
    """WCAG 2.2: 4.5 for text, 3 for the fills of bars."""
    style = (UI / "dashboard.css").read_text()
    blocks = re.findall(r":root(?:\[data-theme=\"dark\"\])? \{\n(.*?)\n\}", style, re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in blocks[:2])
    again = dict(
        re.findall(r"--([\w-]+): (#\w{6})", style[style.index("@media (prefers-color-scheme") :])
    )
    assert {name: again[name] for name in dark} == dark
    statuses = (
        "uploading",
        "pending",
        "processing",
        "retrying",
        "done",
        "partial",
        "error",
        "cancelled",
    )
    for theme in (light, dark):
        pairs = [(ink, ground) for ink in ("text", "muted", "faint") for ground in ("bg", "surface")]
        pairs += [("accent", "surface"), ("accent", "accent-soft"), ("on-accent", "accent")]
        pairs += [pair for name in statuses for pair in ((name, "surface"), (name, f"{name}-soft"))]
        for ink, ground in pairs:
            assert _contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground)
        for name in statuses:
            assert _contrast(theme[f"{name}-fill"], theme["surface"]) >= 3, name
            assert _contrast(theme[f"{name}-fill"], theme["track"]) >= 3, name


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
