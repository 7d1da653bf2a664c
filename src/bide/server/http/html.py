"""Plain HTML pages with one inline style. They load nothing from other servers."""

from __future__ import annotations

from html import escape

from bide.server.http.request import Response, text_response

__all__ = ["escape", "html_response", "wants_html"]

# The colours, sizes and spacing of ui/dashboard.css.
_STYLE = """
:root { color-scheme: light dark; --bg: #f8f9fa; --surface: #fff; --sunken: #f1f3f5; --border: #e3e6ea; --text: #14171c;
  --muted: #535b68; --accent: #2455c9; --mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace; }
@media (prefers-color-scheme: dark) { :root { --bg: #0c0e11; --surface: #13161a; --sunken: #1a1e23; --border: #272c34;
  --text: #e9ecf0; --muted: #a3abb8; --accent: #84aaff; } }
body { font: 14px/22px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; background: var(--bg); color: var(--text);
  max-width: 60rem; margin: 0 auto; padding: 32px 16px 48px; }
h1 { font-size: 20px; line-height: 28px; font-weight: 600; } h2 { font-size: 16px; line-height: 24px; margin: 32px 0 12px; }
h3 { font-size: 14px; margin: 0; } p { margin: 8px 0; } a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; } :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
section, nav { background: var(--surface); border: 1px solid var(--border); border-radius: 10px; padding: 12px 16px;
  margin: 12px 0; box-shadow: 0 1px 2px rgb(16 24 40 / .05); }
code, pre { font: 12px/18px var(--mono); overflow-wrap: anywhere; }
pre { padding: 12px; margin: 8px 0; overflow-x: auto; background: var(--sunken); border-radius: 6px; }
summary { cursor: pointer; color: var(--muted); }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top; font-weight: 400;
  padding: 6px 12px 6px 0; border-bottom: 1px solid var(--border); } th { color: var(--muted); font-size: 12px; }
.method { font-weight: 600; display: inline-block; min-width: 4.5rem; }
nav ul { list-style: none; padding: 0; margin: 0; } nav li { padding: 2px 0; }
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
