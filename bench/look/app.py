"""The kinds of the stored jobs."""

from __future__ import annotations

from typing import Any

from bide import App

app = App(queues={"video": 1, "batch": 1})


@app.job()
def noop(n: int) -> int:
    return n


@app.job(queue="video", search=["input.video.id"], secret=["input.token"])
def transcode(video: dict[str, Any], token: str = "") -> None: ...


@app.job()
def ocr(page: int) -> None: ...


@app.job()
def mail(to: str) -> None: ...


@app.job(queue="batch")
def report(month: str) -> None: ...
