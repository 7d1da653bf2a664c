"""Harmless kinds for tests that send arbitrary requests to a real service."""

from __future__ import annotations

from typing import Any

from bide import App, Context, File, JobError, Partial

app = App()


@app.job(queue="video", retries=2, backoff=0.05)
def encode(
    ctx: Context, source: str, height: int = 720, tags: list[str] | None = None
) -> dict[str, Any]:
    ctx.output("a.txt", b"0123456789")
    if height < 0:
        raise JobError("TOO_LOW", "no picture")
    return {"source": source, "tags": tags}


@app.job()
async def echo(value: Any = None) -> Any:
    return Partial(value, errors=["odd"]) if isinstance(value, bool) else value


@app.job()
def measure(source: File, pages: list[File] | None = None, unit: str = "bytes") -> int:
    return source.size + sum(page.size for page in pages or ())
