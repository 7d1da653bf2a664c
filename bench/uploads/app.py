"""The kinds of the measurements of uploads."""

from __future__ import annotations

from bide import App, File

app = App()


@app.job(retention=None)
def take(file: File) -> int:
    return file.size


@app.job()
def nothing() -> None: ...
