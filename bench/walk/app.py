"""The jobs of the walks."""

from __future__ import annotations

import time

from bide import App, File

app = App()


@app.job()
def nap(seconds: float) -> None:
    time.sleep(seconds)


@app.job()
def take(file: File, seconds: float) -> int:
    time.sleep(seconds)
    return file.size
