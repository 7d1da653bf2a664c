"""Writes reports: a job that takes some seconds and shows its progress. Start it with `bide serve app:app --auth keys`."""

from __future__ import annotations

import time

from bide import App, Context

app = App()


@app.job()
def report(ctx: Context, title: str, pages: int = 20, seconds: float = 0.25) -> dict[str, str]:
    """Writes a page every `seconds`. File: report.txt."""
    lines = [f"# {title}"]
    for page in range(1, pages + 1):
        time.sleep(seconds)
        lines.append(f"page {page}")
        ctx.progress(page, pages, unit="pages", message=f"Writing page {page}")
    ctx.output("report.txt", "\n".join(lines).encode())
    return {"title": title, "file": "report.txt"}
