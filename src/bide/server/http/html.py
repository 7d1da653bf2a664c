"""Plain HTML pages with one inline style. They load nothing from other servers."""

from __future__ import annotations

from html import escape

from bide.server.http.request import Response, text_response

__all__ = ["escape", "html_response", "wants_html"]

_STYLE = """
:root { color-scheme: light dark; --border: color-mix(in srgb, currentColor 20%, transparent); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2rem; } h3 { font-size: 1rem; margin-bottom: 0; }
section { border-top: 1px solid var(--border); padding-top: .5rem; }
code, pre { font: .875em/1.45 ui-monospace, monospace; }
pre { padding: .75rem; overflow-x: auto; border: 1px solid var(--border); border-radius: .375rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
  padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--border); }
.method { font-weight: 700; display: inline-block; min-width: 4.5rem; }
nav ul { list-style: none; padding: 0; } nav a { text-decoration: none; }
"""
_SECURITY = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    (b"x-content-type-options", b"nosniff"),
    (b"vary", b"Accept"),
)


def html_response(title: str, body: str) -> Response:
    """`body` is HTML, `title` is text."""
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return text_response("text/html; charset=utf-8", page.encode(), *_SECURITY)


def wants_html(accept: str | None) -> bool:
    """Whether the Accept header prefers HTML to JSON, as browsers do."""
    html = json = 0.0
    for entry in (accept or "").split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        weight = _weight(parameters)
        if name == "text/html":
            html = max(html, weight)
        elif name in ("application/json", "application/problem+json"):
            json = max(json, weight)
    return html > json


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
